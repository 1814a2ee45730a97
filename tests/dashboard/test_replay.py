"""Traces, live and simulated, played again."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests import patience

from geomq.broker.config.recording import Trace
from geomq.broker.local_federation import THREE_REGIONS, LocalFederation, local_configs
from geomq.broker.operations.trace_files import TraceFiles
from geomq.client import Client
from geomq.dashboard import replay
from geomq.dashboard.recorded_files import read_views
from geomq.dashboard.replay import replay_view
from geomq.errors import DataError
from geomq.pipeline.simulation import Scenario, simulate_one
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.trace.records import TraceRecord

SMALL = Scenario(brokers=9, clients=60, seconds=60, topics=5, preset="steady", seed=1)


def shown(directory: Path) -> dict[str, Any]:
    (view,) = read_views(directory)
    content: dict[str, Any] = json.loads(view.body)
    return content


def test_a_simulation_is_played_again_from_its_trace(tmp_path: Path) -> None:
    result = simulate_one(SMALL, "disgb_events", trace=tmp_path / "sim")
    view = shown(tmp_path / "sim")
    assert (view["kind"], view["world"]["strategy"], view["world"]["areas"]) == ("replay", "disgb_events", "grid")
    assert len(view["world"]["brokers"]) == 9
    frames = view["frames"]
    times = [frame["t"] for frame in frames]
    assert times == sorted(times)
    assert (view["start"], view["end"]) == (times[0], times[-1])
    sent = sum(count for frame in frames for _, _, kind, count in frame["flows"] if kind == "event")
    assert sent == result["messages"]["event"]
    assert max(broker["clients"] for frame in frames for broker in frame["brokers"].values()) > 0
    delivered = {event["id"]: event["delivered"] for frame in frames for event in frame["events"]}
    assert 0 < sum(delivered.values()) <= result["deliveries"] + result["quiet_tail_deliveries"]


def test_a_live_trace_knows_where_its_brokers_stand(tmp_path: Path) -> None:
    async def live() -> None:
        configs = {
            name: msgspec.structs.replace(config, trace=Trace(directory=str(tmp_path / "live")))
            for name, config in local_configs(THREE_REGIONS, "flood_events").items()
        }
        async with LocalFederation(configs) as running:
            port = running.brokers["paris"].port
            async with Client("127.0.0.1", port, client_id="anna", at=(48.9, 2.4)) as anna:
                await anna.subscribe("news")
                await anna.publish("news", "x", qos=1)
                await anext(aiter(anna.messages))
                await asyncio.sleep(2 * replay.FRAME_MS / 1000)  # who comes and goes within a frame is not seen

    patience.run(live())
    view = shown(tmp_path / "live")
    paris = next(one for one in view["world"]["brokers"] if one["name"] == "paris")
    assert (paris["lat"], paris["lon"]) == (48.877366, 2.359708)
    puts = [put for frame in view["frames"] for put in frame["clients"]["put"]]
    assert ["anna", "paris", 48.9, 2.4] in puts


def test_without_an_outline_brokers_stand_among_their_clients(tmp_path: Path) -> None:
    files = TraceFiles(tmp_path / "bare", "a")
    for number, broker in enumerate("ab"):
        client = ClientId(f"c{number}")
        files.take(
            TraceRecord(number, BrokerId(broker), "moved", "location", client=client, lat=10.0 * number, lon=5.0)
        )
    files.flush()
    brokers = shown(tmp_path / "bare")["world"]["brokers"]
    assert [(one["name"], one["lat"], one["lon"]) for one in brokers] == [("a", 0.0, 5.0), ("b", 10.0, 5.0)]


def test_a_trace_that_is_too_long_or_broken_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_one(SMALL, "flood_events", trace=tmp_path / "sim")
    monkeypatch.setattr(replay, "RECORDS_MAX", 10)
    with pytest.raises(DataError, match="at most 10"):
        replay_view(tmp_path / "sim")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "trace.a.parquet").write_bytes(b"nonsense")
    with pytest.raises(DataError, match="not a readable trace file"):
        read_views(tmp_path / "broken")


def test_a_long_trace_has_fewer_frames_a_second(tmp_path: Path) -> None:
    files = TraceFiles(tmp_path / "long", "a")
    for hour in range(24):
        files.take(TraceRecord(hour * 3_600_000.0, BrokerId("a"), "published", "event"))
    files.flush()
    assert len(shown(tmp_path / "long")["frames"]) <= replay.FRAMES_MAX + 1
