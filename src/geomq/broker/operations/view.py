"""The running broker as operators see it: what the admin API and the metrics ask for."""

from collections.abc import Callable, Iterator, Mapping, Sized

from geomq.broker.clients.geotopics import read_filter
from geomq.broker.clients.registry import Registry
from geomq.broker.clients.retention import Retention
from geomq.broker.config.settings import Config
from geomq.broker.core import Core
from geomq.broker.operations.admin_view import ClientView, SubscriptionView
from geomq.broker.peers.membership import Membership
from geomq.broker.state.client import Client
from geomq.broker.state.drops import Drop
from geomq.broker.state.tracer import OnDemand, RingPage
from geomq.geo import fence_text
from geomq.mqtt.codec.reasons import ReasonCode


class View:
    """Implements BrokerView on the parts of a broker."""

    def __init__(
        self,
        core: Core,
        *,
        connections: Sized,
        registry: Registry,
        retention: Retention,
        membership: Membership,
        listeners: list[tuple[str, str, int]],
        links: Callable[[], Mapping[str, float]],
        held: Callable[[], Mapping[str, int]],
    ) -> None:
        self._core = core
        self._connections = connections
        self._registry = registry
        self._retention = retention
        self._links = links
        self._held = held
        self.membership = membership
        self.listeners = listeners
        self.started_at = core.wall_s()
        self._recent = OnDemand(core.trace, core.loop)

    @property
    def config(self) -> Config:
        return self._core.config

    def unwell(self) -> str | None:
        return self._core.outbox.full

    def counts(self) -> Mapping[str, int]:
        return self._core.counts.as_dict()

    def drops(self) -> Iterator[tuple[Drop, int]]:
        return self._core.drops.totals()

    def gauges(self) -> Mapping[str, float]:
        clients = self._core.clients
        return {
            "connections": len(self._connections),
            "sessions": len(clients),
            "subscriptions": self._core.filters.count,
            "retained": len(self._retention),
            "messages_stored": self._core.store.messages,
            "publishers_waiting": self._core.pressure.waiting,
            "queued_bytes": self._core.backlog.bytes,
            "queued_messages": self._core.backlog.messages,
            **self._links(),
            **self._memory(),
        }

    def _memory(self) -> dict[str, float]:
        budget = self._core.budget
        found = {"used": budget.used, "limit": budget.limit or 0, **self._held()}
        return {"memory_shedding": int(budget.sheds), **{f"memory_{name}_bytes": size for name, size in found.items()}}

    def client_ids(self) -> Iterator[str]:
        return iter(tuple(self._core.clients))

    def client(self, client_id: str) -> ClientView | None:
        client = self._core.clients.get(client_id)
        return None if client is None else self._client_view(client)

    def _client_view(self, client: Client) -> ClientView:
        connection, session = client.connection, client.session
        connected_at = None
        if connection is not None:
            connected_at = self._core.wall_s() - (self._core.loop.time() - connection.opened_at)
        return ClientView(
            client_id=client.id,
            connected=connection is not None,
            user=client.user,
            address=None if connection is None else connection.address,
            listener=None if connection is None else connection.listener.kind,
            version=session.version,
            connected_at=connected_at,
            expires_at=None if session.expires_at is None else self._core.now_s.unix_s(session.expires_at),
            keep_alive_s=0 if connection is None else connection.keep_alive_s,
            location=client.location,
            fences={name: fence_text(fence) for name, fence in client.fences.items()},
            subscriptions=len(session.subscriptions),
            pending=session.pending,
            dropped=session.dropped,
        )

    def subscriptions(self, client_id: str) -> Iterator[SubscriptionView]:
        client = self._core.clients.get(client_id)
        if client is None:
            return
        for whole, subscription in tuple(client.session.subscriptions.items()):
            reading = read_filter(whole)
            state = self._core.node.clients.get(client.subscription_key(reading.prefix))
            fence = None if state is None else state.subscriptions.get(reading.plain)
            yield SubscriptionView(
                client_id=client_id,
                topic_filter=whole,
                qos=subscription.qos,
                fence=None if fence is None else fence_text(fence),
                identifier=subscription.identifier,
                no_local=subscription.no_local,
                retain_as_published=subscription.retain_as_published,
                retain_handling=subscription.retain_handling,
            )

    def kick(self, client_id: str, *, discard: bool) -> bool:
        client = self._core.clients.get(client_id)
        if client is None:
            return False
        if client.connection is not None:
            client.connection.dismiss(ReasonCode.ADMINISTRATIVE_ACTION)
        if discard and self._core.clients.get(client_id) is client:
            self._registry.end(client)
        return True

    def trace(self, since: int, limit: int) -> RingPage:
        return self._recent.since(since, limit=limit)
