"""`grid_quorum`: brokers stand in a square; events and subscriptions go to the row and the column of their home.

The row of one broker crosses the column of any other, so an event from (r, c) meets a subscription from (r', c')
twice: at (r, c') and at (r', c). Only the first, which got the event along the row, notifies the subscriber's home;
with `notify_twice` both do, as the published simulation counts it, and the second is dropped on arrival.

If brokers do not fill the square, the last row is shorter. Then (r, c') may be a hole, but only if r is the last row,
and then (r', c) does not exist: that one notifies.
"""

import math

from geomq.geo import Fence
from geomq.routing.core.model import BrokerId, ClientId, Event
from geomq.routing.core.strategy import StrategyOptions
from geomq.routing.strategies.rendezvous import RendezvousStrategy


def grid_side(brokers: int) -> int:
    """The columns of the smallest square that holds all brokers."""
    return math.isqrt(brokers - 1) + 1


class GridOptions(StrategyOptions, frozen=True):
    notify_twice: bool = False


class GridQuorum(RendezvousStrategy):
    """Rows and columns as quorums."""

    plans = True
    places_directly = True

    Options = GridOptions

    def event_targets(self, event: Event) -> tuple[BrokerId, ...]:
        return self._row_and_column(self.me)

    def subscription_targets(self, client: ClientId, topic_filter: str, fence: Fence | None) -> tuple[BrokerId, ...]:
        return self._row_and_column(self.me)

    def notifies(self, event: Event, home: BrokerId) -> bool:
        """Brokers in the publisher's row or column have the event already; the others are notified once."""
        if event.id.origin not in self.federation.position:
            return True
        row, column = self._cell(event.id.origin)
        my_row, my_column = self._cell(self.me)
        home_row, home_column = self._cell(home)
        if row == home_row or column == home_column:
            return False
        reached_by_row = my_row == row and my_column == home_column
        reached_by_column = my_column == column and my_row == home_row
        is_hole = row * self._side + home_column >= len(self.federation.ids)
        return reached_by_row or (reached_by_column and (is_hole or self.options.notify_twice))

    @property
    def _side(self) -> int:
        return grid_side(len(self.federation.ids))

    def _cell(self, broker: BrokerId) -> tuple[int, int]:
        return divmod(self.federation.position[broker], self._side)

    def _row_and_column(self, broker: BrokerId) -> tuple[BrokerId, ...]:
        row, column = self._cell(broker)
        return tuple(
            other for other in self.federation.ids if self._cell(other)[0] == row or self._cell(other)[1] == column
        )
