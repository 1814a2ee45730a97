"""Running totals of a broker, as plain integers that cost nothing to raise. Others read and publish them."""


class Counts:
    """What happened since the start."""

    __slots__ = (
        "answer_bytes_sent",
        "answers_sent",
        "brokers_refused",
        "bytes_received",
        "bytes_sent",
        "client_lines_unlogged",
        "clients_connected",
        "clients_disconnected",
        "connections_opened",
        "connections_refused",
        "connections_revoked",
        "connects_received",
        "control_bytes_received",
        "deliveries_denied",
        "events_delivered",
        "events_dropped",
        "events_received",
        "events_refused",
        "events_repeated",
        "events_slowed",
        "expired_sessions",
        "geo_errors",
        "location_updates",
        "locations_dropped",
        "memory_disconnected",
        "memory_refused",
        "name_conflicts",
        "other_publishes",
        "packets_received",
        "peer_messages_refused",
        "peer_messages_unsent",
        "protocol_errors",
        "retained_refused",
        "sessions_given",
        "sessions_taken",
        "trace_dropped",
        "trace_records",
        "wills_published",
    )

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)

    answer_bytes_sent: int
    answers_sent: int
    brokers_refused: int
    bytes_received: int
    bytes_sent: int
    client_lines_unlogged: int
    clients_connected: int
    clients_disconnected: int
    connections_opened: int
    connections_refused: int
    connections_revoked: int
    connects_received: int
    control_bytes_received: int
    deliveries_denied: int
    events_delivered: int
    events_dropped: int
    events_received: int
    events_refused: int
    events_repeated: int
    events_slowed: int
    expired_sessions: int
    geo_errors: int
    location_updates: int
    locations_dropped: int
    memory_disconnected: int
    memory_refused: int
    name_conflicts: int
    other_publishes: int
    packets_received: int
    peer_messages_refused: int
    peer_messages_unsent: int
    protocol_errors: int
    retained_refused: int
    sessions_given: int
    sessions_taken: int
    trace_dropped: int
    trace_records: int
    wills_published: int

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}
