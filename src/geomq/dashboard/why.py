"""Why an event went where it went, in the JSON the page shows. The reasoning is `geomq.workload.traffic.verdict`'s."""

from collections.abc import Iterable

from geomq.dashboard.shapes import Json
from geomq.workload.traffic.verdict import Case, step_text


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
        "reached": case.reached,
        "clients": {client: {"verdict": answer.verdict, "text": answer.text} for client, answer in answers.items()},
    }
