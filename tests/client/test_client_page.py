"""The examples of the client's page run, and its tables name what exists."""

import asyncio
import inspect
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests import patience

from geomq.broker.config.settings import Config, Listener, Persistence
from geomq.broker.server import Broker
from geomq.client import Client, Message

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "client.md").read_text()


def blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@contextmanager
def broker_port() -> Iterator[int]:
    """A broker in a thread of its own."""
    config = Config(listeners=(Listener(host="127.0.0.1", port=0),), persistence=Persistence(enabled=False))
    ready, port = threading.Event(), 0
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        nonlocal port
        async with Broker(config) as broker:
            port = broker.port
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(10)
        yield port
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


EXAMPLES = {
    0: "alarm/test hello Circle(",
    1: "",
    2: "",
    3: "alarm/test hello Circle(",
    4: "HELLO\n",
}
"""What each example prints."""


@pytest.mark.parametrize("number", EXAMPLES)
def test_the_examples_run(
    number: int, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(blocks()) == len(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    with broker_port() as port:
        code = blocks()[number].replace("asyncio.run(main())\n", "").replace('"localhost"', f'"127.0.0.1", {port}')
        code = code.replace("Client(host,", f'Client("127.0.0.1", {port},')
        names: dict[str, Any] = {}
        exec(compile(code, "client.md", "exec"), names)
        if "main" in names:
            patience.run(names["main"]())
        if "report" in names:
            patience.run(names["report"]("127.0.0.1"))
            patience.run(names["report"]("127.0.0.1"))
            assert (tmp_path / "client.state").exists()
        if "follow" in names:
            with pytest.raises(TimeoutError):
                patience.run(asyncio.wait_for(names["follow"]("127.0.0.1"), 0.5))
    assert capsys.readouterr().out.startswith(EXAMPLES[number])


def test_every_argument_of_the_client_is_on_the_page() -> None:
    arguments = list(inspect.signature(Client.__init__).parameters)[1:]
    for name in (
        *arguments,
        *inspect.signature(Client.publish).parameters,
        *inspect.signature(Client.subscribe).parameters,
    ):
        if name not in ("self", "host", "topic_filter"):
            assert re.search(rf"\b{name}\b", PAGE), name
    for name in Message.__dataclass_fields__:
        assert f"`{name}`" in PAGE
