"""The `$SYS` topics: what Mosquitto's users look for, under the same names, and a few of our own."""

from geomq import __version__
from geomq.broker.clients.publishing import Publishing
from geomq.broker.clients.retention import Retention
from geomq.broker.core import Core
from geomq.broker.operations.loads import Loads


class SysTopics:
    """Publishes the totals every so often; only what changed is published again."""

    def __init__(self, core: Core, publishing: Publishing, retention: Retention) -> None:
        self._core = core
        self._publishing = publishing
        self._retention = retention
        self._started = self._published_at = core.loop.time()
        self._loads = Loads(self._totals())
        self._connected_max = self._used_max = 0
        self._last: dict[str, str] = {}

    def publish(self) -> None:
        now = self._core.loop.time()
        self._loads.take(self._totals(), now - self._published_at)
        self._published_at = now
        for topic, value in self.values().items():
            if self._last.get(topic) != value:
                self._last[topic] = value
                self._publishing.announce(topic, value.encode(), retain=True)

    def _totals(self) -> dict[str, int]:
        """What loads are reckoned of."""
        counts = self._core.counts
        return {
            "bytes/received": counts.bytes_received,
            "bytes/sent": counts.bytes_sent,
            "connections": counts.connects_received,
            "messages/received": counts.packets_received,
            "messages/sent": counts.events_delivered + counts.answers_sent,
            "publish/dropped": counts.events_dropped,
            "publish/received": counts.events_received + counts.other_publishes,
            "publish/sent": counts.events_delivered,
            "sockets": counts.connections_opened,
        }

    def values(self) -> dict[str, str]:
        """All topics and what they say now."""
        values = self._of_clients() | self._of_traffic() | self._of_what_is_kept()
        core, used = self._core, self._core.budget.used
        self._used_max = max(self._used_max, used)
        values |= {
            "version": f"geomq version {__version__}",
            "uptime": f"{int(core.loop.time() - self._started)} seconds",
            "geo/location updates": core.counts.location_updates,
            "geo/errors": core.counts.geo_errors,
            "heap/current": used,
            "heap/current size": used,
            "heap/maximum": self._used_max,
            "memory/limit": core.budget.limit or 0,
            "memory/shedding": core.budget.sheds.name.lower().replace("_", " "),
            **dict(self._loads.values()),
        }
        return {f"$SYS/broker/{name}": str(value) for name, value in values.items()}

    def _of_clients(self) -> dict[str, object]:
        connected = shared = 0
        for client in self._core.clients.values():
            connected += client.connection is not None
            for prefix, count in (client.prefixes or {}).items():
                shared += count * prefix.startswith("$share/")
        total = len(self._core.clients)
        self._connected_max = max(self._connected_max, connected)
        return {
            "clients/connected": connected,
            "clients/active": connected,
            "clients/disconnected": total - connected,
            "clients/inactive": total - connected,
            "clients/maximum": self._connected_max,
            "clients/total": total,
            "clients/expired": self._core.counts.expired_sessions,
            "shared_subscriptions/count": shared,
            "subscriptions/count": self._core.filters.count,
        }

    def _of_traffic(self) -> dict[str, object]:
        counts = self._core.counts
        return {
            "messages/received": counts.packets_received,
            "messages/sent": counts.events_delivered + counts.answers_sent,
            "publish/messages/received": counts.events_received + counts.other_publishes,
            "publish/messages/sent": counts.events_delivered,
            "publish/messages/dropped": counts.events_dropped,
            "publish/bytes/received": max(0, counts.bytes_received - counts.control_bytes_received),
            "publish/bytes/sent": max(0, counts.bytes_sent - counts.answer_bytes_sent),
            "bytes/received": counts.bytes_received,
            "bytes/sent": counts.bytes_sent,
        }

    def _of_what_is_kept(self) -> dict[str, object]:
        stored = self._core.store.messages
        return {
            "messages/stored": stored,
            "retained messages/count": len(self._retention),
            "store/messages/count": stored,
            "store/messages/bytes": self._core.backlog.bytes + self._retention.bytes,
        }
