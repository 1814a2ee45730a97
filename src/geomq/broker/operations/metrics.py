"""Prometheus metrics of one broker: its own registry, values read when asked, nothing counted here.

The hot path raises plain integers; this turns them into counters and gauges at the moment of a scrape.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from geomq import __version__
from geomq.broker.operations.admin_view import BrokerView

CONTENT_TYPE = CONTENT_TYPE_LATEST

HELP = {
    "answer_bytes_sent": "Bytes of packets sent to clients that are no PUBLISH.",
    "answers_sent": "MQTT packets sent to clients that are no PUBLISH.",
    "brokers_refused": "Brokers refused: no proof of the name, another certificate, or not named in `admit`.",
    "bytes_received": "Bytes received from clients.",
    "bytes_sent": "Bytes sent to clients.",
    "client_lines_unlogged": "Clients that came, went or were refused without a line in the log; see `[log]`.",
    "clients_connected": "Clients let in since the start.",
    "clients_disconnected": "Clients let in before that disconnected or were disconnected.",
    "cloud_connected": "1 while the cloud broker is connected, else 0.",
    "connections": "Connected clients.",
    "connections_opened": "Connections accepted.",
    "connections_refused": "Connections or CONNECTs refused.",
    "connections_revoked": "Connections ended by a reload: user gone, or password or right to connect changed.",
    "connects_received": "CONNECT packets received.",
    "control_bytes_received": "Bytes of packets received from clients that are no PUBLISH.",
    "deliveries_denied": "Deliveries denied by access control.",
    "events_delivered": "Events delivered to subscribers.",
    "dropped_events": "Deliveries given up by `reason`, `receiver` (`client`, `session`, `peer`, `cloud`) and `peer`.",
    "events_dropped": "Deliveries given up: to clients, sessions, peers and the cloud. See `geomq_dropped_events`.",
    "events_received": "Events received from clients.",
    "events_refused": "Events refused by access control, limits or the disk.",
    "events_repeated": "Events acknowledged but dropped as duplicates: their writer had sent them before.",
    "events_slowed": "Events whose publisher was answered only when a full queue had a place for them.",
    "expired_sessions": "Sessions that expired.",
    "geo_errors": "Invalid locations and fences from clients.",
    "location_updates": "Location updates accepted.",
    "locations_dropped": "Location updates dropped by the rate limit.",
    "memory_connections_bytes": "Memory of connections and TLS, estimated.",
    "memory_disconnected": "Connections ended because memory was short and their clients read or finished nothing.",
    "memory_limit_bytes": "Memory the process may take; 0 if that is not known.",
    "memory_links_bytes": "Memory of what waits for peers or for clients that move, estimated.",
    "memory_queues_bytes": "Memory of the events queued for clients, estimated; shared ones count once for each.",
    "memory_refused": "Connections, subscriptions and events refused because memory was short.",
    "memory_retained_bytes": "Memory of retained messages, estimated.",
    "memory_sessions_bytes": "Memory of sessions, estimated.",
    "memory_shedding": "What memory is short for: 0 nothing, 1 new clients, 2 slow readers, 3 growth, 4 publishers.",
    "memory_subscriptions_bytes": "Memory of subscriptions, estimated.",
    "memory_used_bytes": "Memory in use: what the process occupies, less what it has freed.",
    "messages_stored": "Messages in the store.",
    "name_conflicts": "Links refused because two brokers have one name; counted at both ends.",
    "other_publishes": "Publishes of clients that are no events: locations, fences and repeats of QoS 2.",
    "packets_received": "MQTT packets received from clients.",
    "peer_messages_refused": "Messages from peers refused: unknown, malformed, or failed in handling.",
    "peer_messages_unsent": "Messages to peers dropped because they could not be encoded for a link.",
    "peers_connected": "Connected peers.",
    "protocol_errors": "Connections closed because of a protocol error.",
    "publishers_waiting": "Publishers that wait for an answer because a queue is full.",
    "queued_bytes": "Bytes of messages that wait for clients, or are on their way to them, as in packets.",
    "queued_bytes_for_peers": "Bytes of messages that wait for peers or are not acknowledged by them, as in frames.",
    "queued_messages": "Messages that wait for clients, or are on their way to them; counted once for each client.",
    "queued_messages_for_peers": "Messages that wait for peers or are not acknowledged by them.",
    "retained": "Retained messages held.",
    "retained_refused": "Retained messages refused because the limit was reached.",
    "sessions_given": "Sessions handed over to other brokers.",
    "sessions_taken": "Sessions received from other brokers.",
    "sessions": "Sessions, connected or not.",
    "subscriptions": "Subscriptions.",
    "trace_dropped": "Trace records dropped because the disk was too slow or failed.",
    "trace_records": "Trace records queued for writing.",
    "wills_published": "Wills published.",
    "workers": "Worker processes that carry clients now.",
    "workers_restarted": "Worker processes that ended and were started again.",
}


class BrokerCollector(Collector):
    """Reads a broker's numbers at every scrape."""

    def __init__(self, view: BrokerView) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        info = InfoMetricFamily("geomq_broker", "Name and version of the broker.")
        info.add_metric([], {"version": __version__, "name": self._view.config.broker.name})
        yield info
        yield GaugeMetricFamily(
            "geomq_start_time_seconds", "Start time of the broker, in seconds since 1970.", self._view.started_at
        )
        for name, count in self._view.counts().items():
            yield CounterMetricFamily(f"geomq_{name}", help_of(name), count)
        dropped = CounterMetricFamily(
            "geomq_dropped_events", help_of("dropped_events"), labels=("reason", "receiver", "peer")
        )
        for drop, count in self._view.drops():
            dropped.add_metric((drop.reason.value, drop.receiver, drop.peer), count)
        yield dropped
        for name, value in self._view.gauges().items():
            yield GaugeMetricFamily(f"geomq_{name}", help_of(name), value)


def make_registry(view: BrokerView) -> CollectorRegistry:
    """A registry with the broker's numbers and those of its process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BrokerCollector(view))
    ProcessCollector(registry=registry)
    return registry


def metrics_text(registry: CollectorRegistry) -> bytes:
    """The answer to a scrape."""
    return generate_latest(registry)


def help_of(name: str) -> str:
    """What a count or gauge means."""
    return HELP.get(name, f"{name.replace('_', ' ').capitalize()}.")
