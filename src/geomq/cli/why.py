"""`geomq why`: what the traces of brokers, or of a simulation, say about an event and a client."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from geomq.broker.operations.logs import printable
from geomq.errors import UsageError
from geomq.routing.core.model import EventId
from geomq.routing.trace.records import record_fields

if TYPE_CHECKING:
    from geomq.workload.traffic.verdict import Answer, Case

LIVE_MS = 1e11
"""Times after this are Unix time, those before it are since the start of a simulation."""


@click.command(short_help="Explain from traces why an event did or did not reach a client.")
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--event", "event", help="Event id, origin:epoch:sequence. Without it, events are listed.")
@click.option(
    "--client", "clients", multiple=True, help="Explain why it did or did not reach this client; may be repeated."
)
@click.option("--topic", help="List events on topics that match this filter.")
@click.option("--publisher", help="List events of this client.")
@click.option("--since", help="List events since then: an ISO 8601 time (UTC without a zone), or milliseconds.")
@click.option("--until", help="List events until then.")
@click.option(
    "--limit",
    default=20,
    type=click.IntRange(1, 10_000),
    show_default=True,
    help="List the latest events, at most this many.",
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable answer.")
def why(
    traces: tuple[Path, ...],
    event: str | None,
    clients: tuple[str, ...],
    topic: str | None,
    publisher: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Follow an event through the brokers whose TRACES (files or directories) are given, step by step, and say why it
    did or did not reach a client. Without --event, list the events it may have been.

    \b
    geomq why --topic 'road/#' --since 2026-05-04T10:00 trace
    geomq why --event paris:3:1207 trace
    geomq why --event paris:3:1207 --client car-7 trace-paris trace-rome
    """
    if event is not None:
        if topic or publisher or since or until:
            raise UsageError("--event names one event; --topic, --publisher, --since and --until list events")
        _one(traces, EventId.parse(event), clients, as_json=as_json)
    else:
        span = (_moment(since), _moment(until))
        _list(traces, topic, publisher, span, clients, limit, as_json=as_json)


def _one(traces: tuple[Path, ...], event_id: EventId, clients: tuple[str, ...], *, as_json: bool) -> None:
    from geomq.workload.traffic.trace_reading import of_event, read_trace
    from geomq.workload.traffic.verdict import Case

    picked = read_trace(traces, of_event(event_id, clients))
    case = Case(event_id, picked.records, picked.brokers, picked.steps)
    if not case.steps:
        span = f"{_time(picked.first_ms)} to {_time(picked.last_ms)}"
        raise UsageError(f"no record of event {event_id} in the trace of {_several(picked.brokers)}, {span}")
    answers = {client: case.answer(client) for client in clients}
    if as_json:
        click.echo(json.dumps(_as_data(case, answers), indent=2))
    else:
        _print_case(case, answers)


def _list(
    traces: tuple[Path, ...],
    topic: str | None,
    publisher: str | None,
    span: tuple[float | None, float | None],
    clients: tuple[str, ...],
    limit: int,
    *,
    as_json: bool,
) -> None:
    from geomq.mqtt.codec.topics import check_filter
    from geomq.workload.traffic.trace_reading import of_events, of_topic, read_trace
    from geomq.workload.traffic.verdict import NO_DELIVERIES, Case

    topic = None if topic is None else check_filter(topic)
    picked = read_trace(traces, of_topic(topic, publisher, span, clients))
    tries = [r for r in picked.records if r.step == "published" or (r.step == "dropped" and r.event_id is None)][
        -limit:
    ]
    ids = [record.event_id for record in tries if record.event_id is not None]
    about = read_trace(traces, of_events(ids)).records
    mine = [record for record in picked.records if record.client in clients and record.event_id is None]
    rows: list[dict[str, Any]] = []
    for record in tries:
        row: dict[str, Any] = record_fields(record)
        if record.event_id is not None:
            steps = [one for one in about if one.event_id == record.event_id]
            ordered = sorted([*steps, *mine], key=lambda one: one.t_ms)
            case = Case(record.event_id, ordered, picked.brokers, picked.steps)
            row["reached"] = _reached(case)
            row["clients"] = {client: _answer_data(case.answer(client)) for client in clients}
        rows.append(row)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        raise UsageError(f"no such event was published in the trace of {_several(picked.brokers)}")
    for row in rows:
        _print_row(row)
    if ids and "delivered" not in picked.steps:
        _say(NO_DELIVERIES)


def _say(text: str) -> None:
    """A line in which names that clients chose cannot steer the terminal."""
    click.echo(printable(text))


def _print_row(row: dict[str, Any]) -> None:
    name = row.get("event_id", f"refused: {row.get('reason')}")
    reached = f" reached {len(row['reached'])}" if row.get("reached") is not None else ""
    _say(f"{_time(row['t_ms'])}  {name}  {row.get('client', '-')} on {row.get('topic')}{reached}")
    for client, answer in row.get("clients", {}).items():
        _say(f"    {client}: {answer['verdict']}: {answer['reason']}")


def _print_case(case: "Case", answers: "dict[str, Answer]") -> None:
    from geomq.workload.traffic.verdict import NO_DELIVERIES, step_text

    event, start_ms = case.published, (case.published or case.steps[0]).t_ms
    if event is None:
        _say(f"event {case.event_id}; the trace does not hold its publication")
    else:
        place = "" if event.lat is None else f" at {event.lat:g},{event.lon:g}"
        fence = "" if event.fence is None else f", to the fence {event.fence}"
        _say(f"event {case.event_id} on {event.topic}, QoS {event.qos}, {event.size} bytes{fence}")
        _say(f"published by {event.client}{place} at {event.broker}, {_time(start_ms)}")
    width = max(len(record.broker) for record in case.steps)
    for record in case.steps:
        _say(f"{record.t_ms - start_ms:>+12.1f} ms  {record.broker:<{width}}  {step_text(record)}")
    reached = case.reached
    if reached:
        _say(f"reached {len(reached)} client{'' if len(reached) == 1 else 's'}: {_several(reached)}")
    else:
        _say("reached nobody" if case.tells_deliveries else NO_DELIVERIES)
    if case.unread:
        _say(f"no trace was given for {_several(case.unread)}")
    for client, answer in answers.items():
        _say(f"{client}: {answer.verdict}: {answer.text}")


def _as_data(case: "Case", answers: "dict[str, Answer]") -> dict[str, Any]:
    return {
        "event": str(case.event_id),
        "published": None if case.published is None else record_fields(case.published),
        "steps": [record_fields(record) for record in case.steps],
        "reached": _reached(case),
        "no_trace_of": case.unread,
        "clients": {client: _answer_data(answer) for client, answer in answers.items()},
    }


def _reached(case: "Case") -> list[str] | None:
    return case.reached if case.tells_deliveries else None


def _answer_data(answer: "Answer") -> dict[str, Any]:
    return {"reached": answer.reached, "verdict": answer.verdict, "reason": answer.text}


def _several(names: Any, most: int = 10) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def _time(t_ms: float) -> str:
    if t_ms < LIVE_MS:
        return f"{t_ms:.1f} ms"
    return datetime.fromtimestamp(t_ms / 1000.0, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _moment(text: str | None) -> float | None:
    """A time as milliseconds."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a time; write 2026-05-04T10:00:00Z, or milliseconds") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000.0
