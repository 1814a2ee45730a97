"""The trace record: one line of what happened, the same for live, simulated and evaluated runs."""

from typing import Any, Literal, NamedTuple, get_args

from geomq.routing.model import BrokerId, ClientId, EventId

Step = Literal[
    "connected",
    "disconnected",
    "moved",
    "subscribed",
    "unsubscribed",
    "published",
    "sent",
    "received",
    "matched",
    "delivered",
    "dropped",
]
STEPS: tuple[Step, ...] = get_args(Step)


class TraceRecord(NamedTuple):
    """One step of one client action or message at one broker. Fields that do not apply are None."""

    t_ms: float
    broker: BrokerId
    step: Step
    kind: str
    event_id: EventId | None = None
    peer: BrokerId | None = None
    client: ClientId | None = None
    topic: str | None = None
    reason: str | None = None
    lat: float | None = None
    lon: float | None = None
    fence: str | None = None
    qos: int | None = None
    size: int | None = None


def record_fields(record: TraceRecord) -> dict[str, Any]:
    """The fields that apply, the event's id as text."""
    fields = {name: value for name, value in zip(record._fields, record, strict=True) if value is not None}
    if record.event_id is not None:
        fields["event_id"] = str(record.event_id)
    return fields
