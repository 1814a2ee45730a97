"""Probes that are dropped when their test ends."""

from typing import Any

from tests.probe import Probe as PlainProbe

from geomq.broker.server import Broker
from geomq.mqtt.codec.packets import Connect
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5

OPEN: list[PlainProbe] = []


class Probe(PlainProbe):
    """A probe that is dropped after its test."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        OPEN.append(self)


async def drop_all() -> None:
    """End every connection the test has made."""
    while OPEN:
        await OPEN.pop().drop()


async def client(broker: Broker, name: str, version: int = V5, **more: Any) -> Probe:
    """A client the broker took."""
    probe, connack = await Probe.connect(broker.port, Connect(name, version, **more))
    assert connack.reason == ReasonCode.SUCCESS
    return probe
