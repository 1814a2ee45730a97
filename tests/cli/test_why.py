"""`geomq why`: on the traces of live brokers, of the simulator, and on what is no trace."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from tests import patience
from tests.broker.federated import configs, federation, until

from geomq.broker.config.recording import Trace
from geomq.cli import main
from geomq.client import Client
from geomq.routing.strategies.registry import STRATEGIES
from geomq.routing.trace.records import TraceRecord

PARIS = (48.88, 2.36)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["why", *arguments])


def ask(*arguments: str) -> Any:
    result = run("--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


async def live(directory: Path) -> None:
    """Three brokers, one event: it reaches `near`, and a client each for every reason why it may not."""
    settled = {
        name: msgspec.structs.replace(config, trace=Trace(directory=str(directory)))
        for name, config in configs("disgb_events", brokers=3).items()
    }
    async with federation(settled) as brokers:
        paris, rhine = brokers["paris"].port, brokers["frankfurt"].port
        confirmed: list[TraceRecord] = []

        def note(record: TraceRecord) -> None:
            if record.reason == "CoverageConfirmed":
                confirmed.append(record)

        brokers["frankfurt"].core.trace(note, steps=["received"])

        def client(name: str, port: int, **more: Any) -> Client:
            return Client("127.0.0.1", port, client_id=name, **more)

        async with (
            client("near", rhine, at=PARIS) as near,
            client("far", rhine, at=(50.1, 8.7)) as far,
            client("elsewhere", paris, at=PARIS) as elsewhere,
            client("other", paris, at=PARIS) as other,
            client("idle", paris, at=PARIS),
            client("car", paris, at=PARIS) as car,
        ):
            async with client("asleep", rhine, at=PARIS, session_expiry_s=100) as asleep:
                await asleep.subscribe("road/+", qos=1)
            await near.subscribe("road/+", qos=1)
            await far.subscribe("road/+")
            await elsewhere.subscribe("road/#", within=(50.1, 8.7, 1_000.0))
            await other.subscribe("text")
            await until(lambda: any(record.peer == "paris" for record in confirmed))
            await car.publish("road/1", b"ice", to=(*PARIS, 5_000.0), qos=1)
            await asyncio.wait_for(anext(near.messages), 30)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("live")
    patience.run(live(directory))
    return directory


def test_an_event_is_found_by_its_topic(traces: Path) -> None:
    (row,) = ask("--topic", "road/#", "--publisher", "car", "--since", "2020-01-01", "--client", "near", str(traces))
    assert (row["topic"], row["client"], row["reached"]) == ("road/1", "car", ["near"])
    assert row["clients"]["near"]["reached"]
    result = run("--topic", "road/+", "--client", "far", str(traces))
    assert row["event_id"] in result.output
    assert "far: outside the event's fence: the client was 4" in result.output
    assert ask("--topic", "road/+", "--until", "2020-01-01T00:00:00Z", str(traces)) == []


def test_every_client_gets_its_own_answer(traces: Path) -> None:
    (row,) = ask("--topic", "road/#", str(traces))
    names = ["near", "far", "elsewhere", "other", "idle", "asleep", "car", "nobody"]
    arguments = [word for name in names for word in ("--client", name)]
    told = ask("--event", row["event_id"], *arguments, str(traces))
    assert {name: told["clients"][name]["verdict"] for name in names} == {
        "near": "delivered",
        "far": "outside the event's fence",
        "elsewhere": "outside the subscription's fence",
        "other": "no such topic",
        "idle": "no subscription",
        "asleep": "waiting",
        "car": "no subscription",
        "nobody": "unknown client",
    }
    assert (told["reached"], told["no_trace_of"]) == (["near"], [])
    steps = [(step["broker"], step["step"]) for step in told["steps"]]
    assert steps[:3] == [("paris", "published"), ("paris", "sent"), ("frankfurt", "received")]
    assert ("frankfurt", "delivered") in steps


def test_the_way_of_an_event_is_readable(traces: Path) -> None:
    (row,) = ask("--topic", "road/#", str(traces))
    text = run("--event", row["event_id"], "--client", "asleep", str(traces)).output
    assert f"event {row['event_id']} on road/1, QoS 1, 3 bytes, to the fence geo:48.88,2.36;u=5000.0\n" in text
    assert "published by car at 48.88,2.36 at paris, 20" in text
    assert " ms  paris      sent to frankfurt (ForwardEvent)\n" in text
    assert " ms  frankfurt  delivered to near\n" in text
    assert "\nreached 1 client: near\n" in text
    assert "\nasleep: waiting: it matched 'road/+' at frankfurt; the client was offline" in text


def test_names_cannot_steer_the_terminal(traces: Path) -> None:
    (row,) = ask("--topic", "road/#", str(traces))
    text = run("--event", row["event_id"], "--client", "\x1b[2J\r\u202e", str(traces)).output
    assert "\n\\x1b[2J\\r\\u202e: unknown client" in text


def test_a_broker_whose_trace_is_missing_is_named(traces: Path) -> None:
    (row,) = ask("--topic", "road/#", str(traces))
    only = [str(path) for path in traces.glob("trace.paris.*")]
    text = run("--event", row["event_id"], *only).output
    assert "the trace holds no delivery: there was none, or deliveries were not recorded ([trace] steps)\n" in text
    assert "\nno trace was given for frankfurt\n" in text


def test_a_trace_without_deliveries_and_subscriptions_proves_nothing(traces: Path, tmp_path: Path) -> None:
    for path in traces.glob("*.parquet"):
        table = pq.read_table(path)
        kept = pc.is_in(table.column("step"), pa.array(["published", "sent", "received"]))
        pq.write_table(table.filter(kept), tmp_path / path.name)
    (row,) = ask("--topic", "road/#", "--client", "near", str(tmp_path))
    assert (row["reached"], row["clients"]["near"]["verdict"]) == (None, "unexplained")
    text = run("--topic", "road/#", str(tmp_path)).output
    assert "car on road/1\nthe trace holds no delivery" in text
    advised = CliRunner().invoke(main, ["advise", str(tmp_path)])
    assert advised.exit_code == 2
    assert advised.stderr.startswith("geomq: no subscription to judge strategies by")
    assert advised.stderr.count("\n") == 1


def test_simulated_traces_are_read_alike(tmp_path: Path) -> None:
    runner = CliRunner()
    world = ["--brokers", "4", "--clients", "30", "--seconds", "60", "--topics", "5"]
    arguments = ["simulate", "--strategy", "dht", *world, "--trace", str(tmp_path / "dht"), "--json"]
    result = runner.invoke(main, arguments)
    assert result.exit_code == 0, result.output
    deliveries = json.loads(result.output)["strategies"]["dht"]["deliveries"]
    rows = ask("--limit", "10000", str(tmp_path / "dht"))
    assert sum(len(row["reached"]) for row in rows) == deliveries > 0
    lucky = next(row["reached"][0] for row in rows if row["reached"])
    rows = ask("--limit", "10000", "--client", lucky, str(tmp_path / "dht"))
    assert {row["clients"][lucky]["verdict"] for row in rows} >= {"delivered", "outside the event's fence"}
    text = run("--event", rows[-1]["event_id"], str(tmp_path / "dht")).output
    assert f"published by {rows[-1]['client']}" in text
    again = runner.invoke(main, arguments)
    assert again.exit_code == 2
    assert again.stderr == f"geomq: {tmp_path / 'dht'} already contains Parquet files; choose another directory\n"


def test_all_strategies_write_traces_side_by_side(tmp_path: Path) -> None:
    world = ["--brokers", "4", "--clients", "20", "--seconds", "20", "--topics", "5", "--trace", str(tmp_path / "all")]
    result = CliRunner().invoke(main, ["simulate", *world])
    assert result.exit_code == 0, result.output
    written = sorted(path.name for path in (tmp_path / "all").iterdir())
    assert written == sorted(name for name in STRATEGIES if name != "single")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--event", "x", "{trace}"], "'x' is not an event id, which is written origin:epoch:sequence"),
        (["--event", "paris:1:2", "{trace}"], "no record of event paris:1:2 in the trace of "),
        (["--event", "a:1:2", "--topic", "t", "{trace}"], "--event names one event; --topic, --publisher, --since and"),
        (["--since", "yesterday", "{trace}"], "'yesterday' is not a time; write 2026-05-04T10:00:00Z, or milliseconds"),
        (["--topic", "none", "{trace}"], "no such event was published in the trace of columbus, frankfurt, paris"),
        (["--topic", "a/#/b", "{trace}"], ""),
        (["missing"], "missing does not exist"),
        ([], "Missing argument 'TRACES...'"),
    ],
)
def test_what_cannot_be_answered_is_one_line(traces: Path, arguments: list[str], line: str) -> None:
    result = run(*(argument.format(trace=traces) for argument in arguments))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"geomq: {line}")
    assert result.stderr.count("\n") == 1
