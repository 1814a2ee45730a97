"""Sessions through many lives."""

import tracemalloc

from tests.broker.fastpath.test_publishing import Stage, Wire

from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connect, Disconnect
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.types import V5


def test_a_client_that_comes_and_goes_all_day_takes_no_more_memory_each_time() -> None:
    stage = Stage()
    connect = Connect("c", clean_start=False, properties=Properties(session_expiry_interval=86_400))

    def come_and_go(times: int) -> int:
        for _ in range(times):
            connection = stage.handlers.make_connection(stage.listener)
            connection.connection_made(Wire())
            connection.data_received(encode(connect, V5) + encode(Disconnect(), V5))
            stage.loop.tick()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    before = come_and_go(200)
    after = come_and_go(2_000)
    tracemalloc.stop()
    assert len(stage.core.clients) == 1
    assert after - before < 50_000
