"""A broker of this process, as the dashboard sees it."""

from itertools import islice

from geomq.broker.peers.membership import FederationView, Membership
from geomq.broker.server import Broker
from geomq.broker.state.tracer import RING_RECORDS
from geomq.dashboard.feed import CLIENTS_MAX, ClientNow, FeedError, Look, Place, Subscribed, is_about
from geomq.geo import Location, parse_fence
from geomq.routing.core.model import EventId
from geomq.routing.federation.changes import SetStrategy
from geomq.routing.trace.records import TraceRecord


class LocalFeed:
    """Reads the broker directly, on its own event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.name = broker.view.config.broker.name

    async def place(self) -> Place:
        return Place(self._broker.core.node.strategy.federation, self._status().strategy)

    async def address(self) -> tuple[str, int] | None:
        plain = ((host, port) for kind, host, port in self._broker.addresses if kind == "tcp")
        return next(plain, None)

    async def clients(self) -> list[ClientNow]:
        view = self._broker.view
        found = (view.client(client_id) for client_id in view.client_ids())
        return [
            ClientNow(
                client.client_id,
                None if client.location is None else Location(*client.location),
                tuple(
                    Subscribed(each.topic_filter, None if each.fence is None else parse_fence(each.fence))
                    for each in view.subscriptions(client.client_id)
                ),
            )
            for client in islice((client for client in found if client is not None and client.connected), CLIENTS_MAX)
        ]

    async def look(self, cursor: int | None) -> Look:
        view = self._broker.view
        page = view.trace(cursor or 0, RING_RECORDS)
        members = self._status().brokers
        return Look(
            counts=dict(view.counts()),
            connections=int(view.gauges()["connections"]),
            links={one.name: one.latency_ms for one in members if one.connected and one.name != self.name},
            records=() if cursor is None else tuple(page.items),
            cursor=page.next,
            missed=page.missed,
        )

    async def about(self, event_id: EventId, clients: frozenset[str]) -> list[TraceRecord]:
        return [
            record for record in self._broker.view.trace(0, RING_RECORDS).items if is_about(record, event_id, clients)
        ]

    async def change_strategy(self, strategy: str) -> None:
        self._membership().change(SetStrategy(strategy, {}))

    async def close(self) -> None:
        """The broker is not ours to close."""

    def _status(self) -> FederationView:
        return self._membership().status()

    def _membership(self) -> Membership:
        membership = self._broker.membership
        if membership is None:
            raise FeedError(f"{self.name} has not started yet")
        return membership
