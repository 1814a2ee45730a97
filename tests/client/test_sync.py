"""The blocking client does what the asynchronous one does, from any thread."""

import inspect
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.client.test_client_page import broker_port

from geomq.client import Client as AsyncClient
from geomq.client import ClientError, Message
from geomq.client.sync import Client, Options
from geomq.errors import GeometryError, UsageError

BERLIN = (52.52, 13.405)


@pytest.fixture
def port() -> Iterator[int]:
    with broker_port() as port:
        yield port


def test_it_takes_the_same_arguments_and_has_the_same_calls() -> None:
    options = set(inspect.signature(AsyncClient.__init__).parameters) - {"self", "host", "port"}
    assert set(Options.__annotations__) == options
    for name in ("move", "subscribe", "unsubscribe", "publish"):
        mine, its = (inspect.signature(getattr(kind, name)) for kind in (Client, AsyncClient))
        assert list(mine.parameters.values()) == list(its.parameters.values()), name
    for name, value in vars(AsyncClient).items():
        if isinstance(value, property) and name != "messages":
            assert isinstance(vars(Client)[name], property)


def test_events_are_published_and_read(port: int) -> None:
    with Client("127.0.0.1", port, at=BERLIN, client_id="c") as client:
        assert (client.client_id, client.connected, client.session_present) == ("c", True, False)
        assert client.address == f"127.0.0.1:{port}"
        assert client.subscribe("t", within=(*BERLIN, 1_000), qos=1) == 1
        client.publish("t", "here", to=(*BERLIN, 1_000), qos=1)
        message = client.receive(5)
        assert message is not None
        assert message.text == "here"
        client.move(48.9, 2.4, qos=1)
        assert client.location == (48.9, 2.4)
        client.publish("t", "elsewhere", qos=1)
        assert client.receive(0.2) is None
        client.unsubscribe("t")
        assert client.dropped == 0


def test_iterating_reads_everything_in_order(port: int) -> None:
    with Client("127.0.0.1", port) as client:
        client.subscribe("t", qos=2)
        for number in range(200):
            client.publish("t", str(number), qos=number % 3)
        got = []
        for message in client:
            got.append(int(message.text))
            if len(got) == 200:
                break
        for qos in range(3):
            assert [number for number in got if number % 3 == qos] == list(range(qos, 200, 3))


def test_a_callback_may_use_the_client_and_may_fail(port: int, caplog: pytest.LogCaptureFixture) -> None:
    got: list[str] = []
    done = threading.Event()

    def answer(message: Message) -> None:
        got.append(message.text)
        if message.text == "bad":
            raise ValueError("planted")
        if message.topic == "question":
            client.publish("answer", message.text.upper(), qos=1)
        else:
            done.set()

    with Client("127.0.0.1", port, on_message=answer) as client:
        client.subscribe("question", qos=1)
        client.subscribe("answer", qos=1)
        client.publish("question", "bad", qos=1)
        client.publish("question", "good", qos=1)
        assert done.wait(5)
    assert got == ["bad", "good", "GOOD"]
    assert "on_message failed for an event on 'question'" in caplog.text


def test_many_threads_share_a_client(port: int) -> None:
    with Client("127.0.0.1", port) as reader, Client("127.0.0.1", port) as writer:
        reader.subscribe("t", qos=1)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: writer.publish("t", str(number), qos=1), range(100)))
        got: set[int] = set()
        while len(got) < 100:
            message = reader.receive(5)
            assert message is not None
            got.add(int(message.text))
        assert got == set(range(100))


def test_errors_are_those_of_the_asynchronous_client(port: int) -> None:
    with pytest.raises(GeometryError):
        Client(at=(91, 0))
    with (
        pytest.raises(ClientError, match=r"cannot connect to 127\.0\.0\.1:1: Connection refused"),
        Client("127.0.0.1", 1),
    ):
        pass
    client = Client("127.0.0.1", port)
    with pytest.raises(ClientError, match="use it with `with`"):
        client.publish("t")
    with client, pytest.raises(UsageError, match="cannot publish: topic"):
        client.publish("#")


def test_a_lost_connection_ends_the_iteration() -> None:
    with broker_port() as port:
        client = Client("127.0.0.1", port)
        client.__enter__()
    with pytest.raises(ClientError, match="is lost"):
        next(iter(client))
    client.__exit__(None, None, None)


def test_a_saved_session_is_continued(port: int) -> None:
    with Client("127.0.0.1", port, client_id="c", clean_start=False, session_expiry_s=60) as client:
        state = client.save()
    assert client.save()
    with Client("127.0.0.1", port, clean_start=False, session_expiry_s=60, state=state) as again:
        assert (again.client_id, again.session_present) == ("c", True)


def test_leaving_for_an_error_does_not_hide_it(port: int) -> None:
    with pytest.raises(ZeroDivisionError), Client("127.0.0.1", port):
        raise ZeroDivisionError
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("geomq-")]
