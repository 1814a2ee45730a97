"""The how-to pages about Spark, run as they stand on a real Spark and a real broker."""

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tests.pipeline.streaming.live import geomq_broker, patiently, publish

from geomq.client import Client
from geomq.geo import Location
from geomq.mqtt.codec.properties import Properties

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (HOW_TO / page).read_text(), re.MULTILINE | re.DOTALL)


def at(lat: float, lon: float) -> Properties:
    return Properties(user_properties=(("geo-location", f"{lat},{lon}"),))


def test_events_into_a_lakehouse(spark: SparkSession, tmp_path: Path) -> None:
    two_lines, each_once, per_minute = blocks("lakehouse.md")
    with geomq_broker(tmp_path / "broker") as port:
        names: dict[str, Any] = {"spark": spark, "BROKERS": f"127.0.0.1:{port}", "FOLDER": str(tmp_path)}
        patiently(lambda: exec(two_lines, names))
        publish(port, [("sensors/1", b"%d" % i) for i in range(20)], properties=at(52.5, 13.4))
        publish(port, [("sensors/1", b"elsewhere")], properties=at(48.9, 2.4))
        patiently(lambda: exec(two_lines + each_once + per_minute, names))
    assert sorted(int(bytes(row.payload)) for row in names["table"].collect()) == list(range(20))
    assert names["per_minute"].columns == ["start", "topic", "cell", "events", "events_per_s", "bytes_per_s"]


def test_alerts_reach_everyone_in_the_flood_zone_and_nobody_else(spark: SparkSession, tmp_path: Path) -> None:
    (alert,) = blocks("alerts.md")
    with geomq_broker(tmp_path / "broker") as port:
        names: dict[str, Any] = {"spark": spark, "BROKERS": f"127.0.0.1:{port}", "FOLDER": str(tmp_path)}
        patiently(lambda: exec(alert, names))
        heard: dict[str, list[str]] = {"near": [], "far": []}
        there, over = threading.Event(), threading.Event()
        listening = threading.Thread(target=lambda: asyncio.run(_listen(port, heard, there, over)))
        listening.start()
        assert there.wait(60)
        publish(port, [("water/elbe/level", b"3.9"), ("water/elbe/level", b"4.6")], properties=at(51.05, 13.74))
        patiently(lambda: exec(alert, names))
        over.set()
        listening.join()
    assert heard == {"near": ["alerts/elbe water at 4.6 m: leave the shore"], "far": []}


async def _listen(port: int, heard: dict[str, list[str]], there: threading.Event, over: threading.Event) -> None:
    """Two phones; the one nearby waits for an alert, the other as long."""
    places = {"near": Location(51.06, 13.75), "far": Location(51.34, 12.37)}

    async def phone(name: str, ready: asyncio.Event) -> None:
        async with Client("127.0.0.1", port, client_id=name, at=places[name]) as client:
            await client.subscribe("alerts/#", qos=1)
            ready.set()
            async for message in client:
                heard[name].append(f"{message.topic} {message.payload.decode()}")

    readies = [asyncio.Event(), asyncio.Event()]
    phones = [asyncio.create_task(phone(name, ready)) for name, ready in zip(places, readies, strict=True)]
    for ready in readies:
        await ready.wait()
    there.set()
    while not over.is_set() or not heard["near"]:
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.0)
    for each in phones:
        each.cancel()
    await asyncio.gather(*phones, return_exceptions=True)
