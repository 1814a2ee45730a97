"""Why an event went where it went, in the JSON the page shows. The reasoning is that of `geomq.workload.traffic`."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from geomq.dashboard.shapes import Json
from geomq.routing.core.model import EventId
from geomq.routing.core.topology import Federation
from geomq.routing.trace.records import TraceRecord
from geomq.workload.traffic.asked import Reasons, who_got_it
from geomq.workload.traffic.trace_reading import Picked, of_event, of_event_and_subscriptions, read_trace
from geomq.workload.traffic.verdict import Case, fits, step_text

SUBSCRIBERS_MAX = 100


class Routed(NamedTuple):
    """How events were routed when one was."""

    federation: Federation
    strategy: str


class Traced(NamedTuple):
    """A recorded trace that can be asked."""

    directory: Path
    routed: Routed


def recorded_why(trace: Traced, event_id: EventId, clients: Sequence[str]) -> Json | None:
    """What a recorded trace says of an event; None if nothing."""
    subscribers = _subscribers(read_trace([trace.directory], of_event_and_subscriptions(event_id)), event_id)
    picked = read_trace([trace.directory], of_event(event_id, [*clients, *subscribers]))
    case = Case(event_id, picked.records, picked.brokers, picked.steps)
    return case_json(case, clients, subscribers, trace.routed) if case.steps else None


def _subscribers(picked: Picked, event_id: EventId) -> list[str]:
    """Who ever subscribed to the event's topic."""
    topic = next((record.topic for record in picked.records if record.event_id == event_id), None)
    subscribed = (record for record in picked.records if record.step == "subscribed" and record.client and record.topic)
    found = (str(record.client) for record in subscribed if topic is not None and fits(str(record.topic), topic))
    return list(dict.fromkeys(found))[:SUBSCRIBERS_MAX]


def case_json(case: Case, clients: Iterable[str], subscribers: Iterable[str], routed: Routed) -> Json:
    """The event's steps in the order of time, whom it reached, which brokers were asked and why, what became of it for
    those who subscribe to its topic, and the verdict for each client asked about."""
    answers = {client: case.answer(client) for client in clients}
    reasons = Reasons(case, routed.federation, routed.strategy)
    return {
        "id": str(case.event_id),
        "steps": [
            {
                "t": record.t_ms,
                "broker": record.broker,
                "step": record.step,
                "text": _text(record, reasons),
                "peer": record.peer,
                "client": record.client,
            }
            for record in case.steps
        ],
        "reached": case.reached if case.tells_deliveries else None,
        "strategy": routed.strategy,
        "brokers": [asked._asdict() for asked in reasons.brokers()],
        "summary": who_got_it(case, subscribers),
        "clients": {client: {"verdict": answer.verdict, "text": answer.text} for client, answer in answers.items()},
    }


def _text(record: TraceRecord, reasons: Reasons) -> str:
    because = reasons.because(record) if record.step == "sent" else None
    return step_text(record) if because is None else f"sent to {record.peer}: {because}"
