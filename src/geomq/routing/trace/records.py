"""The trace record: one line of what happened, the same for live, simulated and evaluated runs."""

from typing import Any, Literal, NamedTuple, get_args

from geomq.routing.core.model import BrokerId, ClientId, EventId

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


COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("t_ms", "float64", "when, in milliseconds: since 1970 in a live run, since the start in a simulated one"),
    ("broker", "string", "where"),
    ("step", "string", f"{', '.join(STEPS[:-1])} or {STEPS[-1]}"),
    ("kind", "string", "client, event, subscription, delivery, location or control"),
    ("event_id", "string", "origin:epoch:sequence of the event, if one is concerned"),
    ("peer", "string", "the other broker, if one is concerned"),
    ("client", "string", "the client, if one is concerned"),
    ("topic", "string", "the topic, or the topic filter of what is subscribed, unsubscribed or matched"),
    ("reason", "string", "why, of what was dropped; the message's name, of what was sent or received"),
    ("lat", "float64", "latitude of the client, or of the event's publisher"),
    ("lon", "float64", "longitude of the same"),
    ("fence", "string", "the fence of the event or subscription, as text; null for everywhere"),
    ("qos", "int8", "of an event or subscription"),
    ("size", "int32", "bytes of the payload"),
)
"""How records are written to files: each field's name, its Arrow type, and what it means."""


def record_fields(record: TraceRecord) -> dict[str, Any]:
    """The fields that apply, the event's id as text."""
    fields = {name: value for name, value in zip(record._fields, record, strict=True) if value is not None}
    if record.event_id is not None:
        fields["event_id"] = str(record.event_id)
    return fields
