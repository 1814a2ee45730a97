"""The columns of every dataset GeoMQ writes or reads, and what they mean.

Owns names, types and meanings; the reference page on data schemas is this module in prose. Builds pyarrow schemas on
demand, so that nothing here needs pyarrow until a file is touched.
"""

from typing import TYPE_CHECKING, NamedTuple

from geomq.routing.trace.records import COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1


class Column(NamedTuple):
    """A column's name, its Arrow type by name, and what it holds."""

    name: str
    type: str
    meaning: str


DATASETS: dict[str, tuple[Column, ...]] = {
    "brokers": (
        Column("broker", "int32", "number of the broker, from 0"),
        Column("name", "string", "its name"),
        Column("lat", "float64", "latitude in degrees, WGS84"),
        Column("lon", "float64", "longitude in degrees, WGS84"),
        Column("population", "int64", "people it stands for; clients are shared out in proportion"),
        Column("clients", "int64", "clients whose home it is"),
    ),
    "topics": (
        Column("topic", "int32", "number of the topic, from 0"),
        Column("name", "string", "its MQTT topic name"),
    ),
    "clients": (
        Column("client", "int32", "number of the client, from 0, broker by broker"),
        Column("home", "int32", "the broker it is connected to"),
        Column("lat_e7", "int32", "latitude of its first place in 1e-7 degrees"),
        Column("lon_e7", "int32", "longitude of its first place in 1e-7 degrees"),
        Column("topics", "list<int32>", "the topics it subscribes to or publishes on"),
    ),
    "actions": (
        Column("t_ms", "int32", "when the client acts, in milliseconds from the start"),
        Column("client", "int32", "who acts"),
        Column("kind", "uint8", "0 location update, 1 subscription update, 2 event"),
        Column("topic", "int32", "the topic, -1 for location updates"),
        Column("lat_e7", "int32", "latitude of the place or of the fence's centre in 1e-7 degrees"),
        Column("lon_e7", "int32", "longitude of the same in 1e-7 degrees"),
        Column("radius_cm", "int32", "radius of the fence in centimetres, -1 for none"),
        Column("payload_bytes", "int32", "size of the event's payload"),
    ),
    "trace": tuple(Column(*column) for column in COLUMNS),
    "sent": (
        Column("t_ms", "float64", "when a replayed client acted, in milliseconds since 1970"),
        Column("due_ms", "float64", "when it should have; the difference is the replayer's lateness"),
        Column("client", "int32", "number of the client; brokers know it as r and this number"),
        Column("home", "int32", "number of the broker it is connected to"),
        Column("kind", "uint8", "0 location update, 1 subscription update, 2 event"),
        Column("number", "int32", "of an event: how many this client sent before; -1 otherwise"),
        Column("topic", "int32", "the topic, -1 for location updates"),
        Column("lat_e7", "int32", "latitude of the place or of the fence's centre in 1e-7 degrees"),
        Column("lon_e7", "int32", "longitude of the same in 1e-7 degrees"),
        Column("radius_cm", "int32", "radius of the fence in centimetres, -1 for none"),
    ),
    "received": (
        Column("t_ms", "float64", "when an event reached a replayed client, in milliseconds since 1970"),
        Column("client", "int32", "number of the client"),
        Column("home", "int32", "number of the broker it is connected to"),
        Column("topic", "int32", "number of the topic, -1 if the workload does not know it"),
        Column("publisher", "int32", "number of the client that sent it"),
        Column("number", "int32", "its number among the events of that client"),
        Column("sent_ms", "float64", "when it was sent, in milliseconds since 1970"),
        Column("dup", "bool", "whether it was marked as sent again"),
    ),
    "results": (
        Column("run", "int32", "number of the evaluation within a sweep"),
        Column("strategy", "string", "name of the strategy; `oracle` is the lower bound"),
        Column("events", "int64", "events published"),
        Column("subscriptions", "int64", "subscription updates made"),
        Column("event_messages", "int64", "messages between brokers that carry an event to match"),
        Column("subscription_messages", "int64", "messages between brokers that carry a subscription update"),
        Column("delivery_messages", "int64", "messages between brokers that carry a matched event"),
        Column("location_messages", "int64", "messages between brokers that carry a location update"),
        Column("control_messages", "int64", "messages between brokers about routes"),
        Column("redundant_messages", "int64", "event and delivery messages that served no client"),
        Column("deliveries", "int64", "events delivered to clients"),
    ),
    "checks": (
        Column("run", "int32", "number of the live run"),
        Column("workload", "string", "name of the workload"),
        Column("strategy", "string", "name of the strategy"),
        Column("broker", "string", "the broker"),
        Column("correct", "int64", "events it handled that a client of its published or received"),
        Column("redundant", "int64", "events it handled that no client of its published or received"),
        Column("required", "int64", "deliveries to its clients that had to happen"),
        Column("possible", "int64", "deliveries that timing could decide either way"),
        Column("received", "int64", "deliveries that happened, copies counted once"),
        Column("lost", "int64", "required deliveries that did not happen"),
        Column("duplicated", "int64", "further copies of a delivery"),
        Column("unexpected", "int64", "deliveries that must not have happened"),
    ),
    "histograms": (
        Column("run", "int32", "number of the evaluation within a sweep"),
        Column("strategy", "string", "name of the strategy"),
        Column("measure", "string", "latency (publish to delivery) or delay (subscription update from home to peer)"),
        Column("ms", "int32", "milliseconds"),
        Column("count", "int64", "how many took exactly that long"),
    ),
    "links": (
        Column("run", "int32", "number of the evaluation within a sweep"),
        Column("strategy", "string", "name of the strategy"),
        Column("sender", "string", "name of the sending broker"),
        Column("receiver", "string", "name of the receiving broker"),
        Column("messages", "int64", "messages sent over this link"),
    ),
    "places": (
        Column("run", "int32", "number of the evaluation within a sweep"),
        Column("name", "string", "name of the broker"),
        Column("lat", "float64", "latitude in degrees"),
        Column("lon", "float64", "longitude in degrees"),
    ),
    "runs": (
        Column("run", "int32", "number of the evaluation within a sweep"),
        Column("preset", "string", "the workload"),
        Column("variant", "string", "paper or default"),
        Column("brokers", "int32", "number of brokers"),
        Column("clients", "int64", "number of clients"),
        Column("topics", "int32", "number of topics"),
        Column("seconds", "int32", "length of the workload"),
        Column("event_fence_deg", "float64", "radius of event fences in degrees, null if the workload has its own"),
        Column("subscription_fence_deg", "float64", "radius of subscription fences in degrees, null likewise"),
        Column("seed", "int64", "seed of the workload"),
    ),
    "simulations": (
        Column("run", "int32", "number of the run within the sweep, from 0"),
        Column("strategy", "string", "name of the strategy"),
        Column("options", "string", "its options as JSON, those given only; empty if none was"),
        Column("preset", "string", "the workload"),
        Column("brokers", "int32", "number of brokers"),
        Column("clients", "int32", "number of clients asked for"),
        Column("seconds", "int32", "length of the workload"),
        Column("topics", "int32", "number of topics"),
        Column("seed", "int64", "seed of the workload and the strategy's dice"),
        Column("error", "string", "why the run failed; then what follows is null, and else this"),
        Column("event_messages", "int64", "messages between brokers that carry an event to match"),
        Column("subscription_messages", "int64", "messages between brokers that carry a subscription update"),
        Column("delivery_messages", "int64", "messages between brokers that carry a matched event"),
        Column("location_messages", "int64", "messages between brokers that carry a location update"),
        Column("control_messages", "int64", "messages between brokers about routes"),
        Column("total_messages", "int64", "the sum of these five"),
        Column("redundant_messages", "int64", "event messages that led to nothing"),
        Column("load_max", "int64", "messages received by the broker that received most"),
        Column("deliveries", "int64", "events delivered to clients"),
        Column("latency_mean_ms", "float64", "from publish to delivery; null without deliveries, like the next three"),
        Column("latency_std_ms", "float64", "its standard deviation"),
        Column("latency_p50_ms", "int64", "its median"),
        Column("latency_p99_ms", "int64", "its 99th percentile"),
        Column("delay_mean_ms", "float64", "subscription updates from home to peer; null if none crossed a link"),
        Column("expected", "int64", "deliveries that the oracle names for the quiet tail"),
        Column("missed", "int64", "those of them that did not happen"),
        Column("unexpected", "int64", "deliveries of the quiet tail that the oracle does not name"),
        Column("doubled", "int64", "deliveries of an event that a client had already, at any time"),
        Column("first", "string", "the first of these three in words; null without one"),
        Column("trace_hash", "string", "digest of all that happened; equal runs have equal ones"),
    ),
}

_GIVEN = ("run", "strategy", "options", "preset", "brokers", "clients", "seconds", "topics", "seed")

MAY_BE_EMPTY: dict[str, frozenset[str]] = {
    "simulations": frozenset(column.name for column in DATASETS["simulations"]) - frozenset(_GIVEN),
    "runs": frozenset({"event_fence_deg", "subscription_fence_deg"}),
    "trace": frozenset(name for name, _, _ in COLUMNS) - {"t_ms", "broker", "step"},
}
"""Columns that may have empty cells; no others may."""

RANGES: dict[str, tuple[float, float]] = {"lat": (-90.0, 90.0), "lon": (-180.0, 180.0), "t_ms": (0.0, 2.5e14)}
"""Of columns with these names."""


def arrow_schema(dataset: str) -> "pa.Schema":
    """The pyarrow schema of a dataset."""
    import pyarrow as pa

    types = {"list<int32>": pa.list_(pa.int32()), "string": pa.string()}
    return pa.schema(
        [
            pa.field(column.name, types.get(column.type) or pa.type_for_alias(column.type))
            for column in DATASETS[dataset]
        ]
    )
