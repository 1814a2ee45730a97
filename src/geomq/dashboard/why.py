"""Why an event went where it went, in the JSON the page shows. The reasoning is `geomq.workload.traffic.verdict`'s."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from geomq.dashboard.shapes import Json
from geomq.routing.core.model import EventId
from geomq.workload.traffic.trace_reading import of_event, read_trace
from geomq.workload.traffic.verdict import Case, step_text


def recorded_why(trace: Path, event_id: EventId, clients: Sequence[str]) -> Json | None:
    """What a recorded trace says of an event; None if nothing."""
    picked = read_trace([trace], of_event(event_id, clients))
    case = Case(event_id, picked.records, picked.brokers, picked.steps)
    return case_json(case, clients) if case.steps else None


def case_json(case: Case, clients: Iterable[str]) -> Json:
    """The event's steps in the order of time, whom it reached, and the verdict for each client asked about."""
    answers = {client: case.answer(client) for client in clients}
    return {
        "id": str(case.event_id),
        "steps": [
            {
                "t": record.t_ms,
                "broker": record.broker,
                "step": record.step,
                "text": step_text(record),
                "peer": record.peer,
                "client": record.client,
            }
            for record in case.steps
        ],
        "reached": case.reached if case.tells_deliveries else None,
        "clients": {client: {"verdict": answer.verdict, "text": answer.text} for client, answer in answers.items()},
    }
