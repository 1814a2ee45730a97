"""`grid_quorum`: brokers stand in a square; events and subscriptions go to the row and the column of their home.

The row of one broker crosses the column of any other, so an event from (r, c) meets a subscription from (r', c')
twice: at (r, c') and at (r', c). Only the first, which heard of the event along the row, tells the subscriber's home;
with `notify_twice` both do, as the published simulation counts it, and the second is dropped on arrival.
"""

import math

from geomq.errors import ConfigError
from geomq.geo import Fence
from geomq.routing.federation import Federation
from geomq.routing.model import BrokerId, ClientId, Event
from geomq.routing.rendezvous import RendezvousStrategy
from geomq.routing.strategy import StrategyOptions


class GridOptions(StrategyOptions, frozen=True):
    notify_twice: bool = False


class GridQuorum(RendezvousStrategy):
    """Rows and columns as quorums."""

    plans = True

    Options = GridOptions

    @classmethod
    def check(cls, federation: Federation) -> None:
        count = len(federation.ids)
        side = math.isqrt(count)
        if side * side != count:
            raise ConfigError(
                f"grid_quorum needs a square number of brokers, such as {side**2} or {(side + 1) ** 2}, not {count}"
            )

    def event_targets(self, event: Event) -> tuple[BrokerId, ...]:
        return self._row_and_column(self.me)

    def subscription_targets(self, client: ClientId, topic_filter: str, fence: Fence | None) -> tuple[BrokerId, ...]:
        return self._row_and_column(self.me)

    def notifies(self, event: Event, home: BrokerId) -> bool:
        """Brokers in the publisher's row or column have the event already; the others hear of it once."""
        if event.id.origin not in self.federation.position:
            return True
        row, column = self._cell(event.id.origin)
        my_row, my_column = self._cell(self.me)
        home_row, home_column = self._cell(home)
        if row == home_row or column == home_column:
            return False
        reached_by_row = my_row == row and my_column == home_column
        reached_by_column = my_column == column and my_row == home_row
        return reached_by_row or (self.options.notify_twice and reached_by_column)

    def _cell(self, broker: BrokerId) -> tuple[int, int]:
        return divmod(self.federation.position[broker], math.isqrt(len(self.federation.ids)))

    def _row_and_column(self, broker: BrokerId) -> tuple[BrokerId, ...]:
        row, column = self._cell(broker)
        return tuple(
            other for other in self.federation.ids if self._cell(other)[0] == row or self._cell(other)[1] == column
        )
