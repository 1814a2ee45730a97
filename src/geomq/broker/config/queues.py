"""The settings of what waits for clients and peers, and what becomes of it when it is too much."""

from typing import Annotated, Literal

from msgspec import Meta

from geomq.broker.config.section import Positive, Section, Size, Text, about

QueueFull = Literal["slow", "drop_oldest", "drop_newest", "disconnect"]
"""What becomes of an event of QoS 1 or 2 whose queue is full."""
ClientPattern = Annotated[str, Meta(min_length=1, max_length=256)]


class Queues(Section, frozen=True):
    """What happens when a queue is full, and how much may wait for peers; how much for clients is in [limits]."""

    full: Annotated[
        QueueFull,
        about(
            "When the queue of a client is full: slow (publishers are answered only when their event has a place in"
            " it), drop_oldest, drop_newest, or disconnect (the client, which has to come again for what waits).",
            reload=True,
        ),
    ] = "drop_newest"
    durable: Annotated[
        tuple[ClientPattern, ...],
        about(
            "Client ids, or patterns of them with * and ?, whose kept sessions are durable: publishers are slowed"
            " down before events for them are dropped.",
            reload=True,
        ),
    ] = ()
    full_for_peers: Annotated[
        Literal["slow", "drop_oldest", "drop_newest"],
        about("When what waits for a peer is too much: slow, drop_oldest or drop_newest.", reload=True),
    ] = "slow"
    slow_s_max: Annotated[
        Annotated[float, Meta(ge=0, le=31_536_000)],
        about(
            "Seconds a full queue may keep a publisher waiting; then what there is no room for is dropped and counted"
            " until there is room again. 0 is as long as it takes.",
            reload=True,
        ),
    ] = 60.0
    peer_messages_max: Annotated[Positive, about("Events that wait for one peer.")] = 100_000
    peer_bytes_max: Annotated[Size, about("Bytes of events that wait for one peer.")] = 536_870_912


class TopicRule(Section, frozen=True):
    """What goes for the events of some topics; of several rules, the first that matches."""

    topic_filter: Annotated[Text, about("The topics, as a filter.")]
    queue_full: Annotated[
        QueueFull, about("When the queue of a client or peer is full, in place of what `[queues]` says.")
    ]
