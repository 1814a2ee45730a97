"""The `$SYS` topics: what Mosquitto's users look for, under the same names, and a few of our own."""

from geomq import __version__
from geomq.broker.clients.publishing import Publishing
from geomq.broker.clients.retention import Retention
from geomq.broker.core import Core


class SysTopics:
    """Publishes the totals every so often; only what changed is published again."""

    def __init__(self, core: Core, publishing: Publishing, retention: Retention) -> None:
        self._core = core
        self._publishing = publishing
        self._retention = retention
        self._started = core.loop.time()
        self._last: dict[str, str] = {}

    def publish(self) -> None:
        for topic, value in self._values().items():
            if self._last.get(topic) != value:
                self._last[topic] = value
                self._publishing.announce(topic, value.encode(), retain=True)

    def _values(self) -> dict[str, str]:
        core, counts = self._core, self._core.counts
        connected = sum(client.connection is not None for client in core.clients.values())
        total = len(core.clients)
        values: dict[str, object] = {
            "version": f"geomq version {__version__}",
            "uptime": f"{int(core.loop.time() - self._started)} seconds",
            "clients/connected": connected,
            "clients/active": connected,
            "clients/disconnected": total - connected,
            "clients/inactive": total - connected,
            "clients/total": total,
            "clients/expired": counts.expired_sessions,
            "messages/received": counts.packets_received,
            "publish/messages/received": counts.events_received,
            "publish/messages/sent": counts.events_delivered,
            "publish/messages/dropped": counts.events_dropped,
            "bytes/received": counts.bytes_received,
            "bytes/sent": counts.bytes_sent,
            "retained messages/count": len(self._retention),
            "subscriptions/count": core.filters.count,
            "store/messages/count": core.store.messages,
            "geo/location updates": counts.location_updates,
            "geo/errors": counts.geo_errors,
            "heap/current size": core.budget.used,
            "memory/limit": core.budget.limit or 0,
            "memory/shedding": core.budget.sheds.name.lower().replace("_", " "),
        }
        return {f"$SYS/broker/{name}": str(value) for name, value in values.items()}
