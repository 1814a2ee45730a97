"""Bytes gather for a client, leave in one write, and so many may wait as the memory allows."""

from tests.broker.connections.pretended import PretendedTransport, handlers_of_a_broker

from geomq.broker.config.settings import Limits, Listener
from geomq.broker.connections.writing import Writing
from geomq.broker.state.budget import BUFFER_BYTES, Shed


class Bounded(PretendedTransport):
    limits: tuple[object, ...] = ()

    def set_write_buffer_limits(self, *limits: object) -> None:
        self.limits = limits


def test_what_gathers_leaves_in_one_write_and_nothing_waits_for_a_client_that_is_gone() -> None:
    handlers, _ = handlers_of_a_broker(limits=Limits())
    connection = handlers.make_connection(Listener(host="127.0.0.1"))
    assert isinstance(connection, Writing)
    written: list[bytes] = []
    connection.write = lambda data: written.append(bytes(data))
    connection.send(b"a")
    connection.send(b"b")
    connection.write_out()
    connection.write_out()
    assert written == [b"ab"]
    assert not connection.out


def test_less_may_wait_for_a_slow_reader_while_memory_runs_short() -> None:
    handlers, _ = handlers_of_a_broker(limits=Limits(write_buffer_bytes_max=10 * BUFFER_BYTES))
    connection, transport = handlers.make_connection(Listener(host="127.0.0.1")), Bounded()
    connection.connection_made(transport)
    assert transport.limits == (10 * BUFFER_BYTES, 10 * BUFFER_BYTES // 4)
    handlers._core.budget.sheds = Shed.SLOW_READERS
    connection.bound_buffer()
    assert transport.limits == (BUFFER_BYTES, BUFFER_BYTES // 4)
