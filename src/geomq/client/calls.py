"""What the client's callers wait for: each call ends with the broker's answer, or with the connection."""

import asyncio
from collections.abc import Callable

from geomq.client.errors import ClientError, NoAnswerError
from geomq.client.packets import refusal
from geomq.errors import UsageError
from geomq.mqtt.client.events import Acknowledged, Dropped

Call = asyncio.Future[Acknowledged]


class Calls:
    """Those of one client. `connected` says whether there is a connection right now."""

    def __init__(self, timeout_s: float, *, connected: Callable[[], bool]) -> None:
        self._timeout_s = timeout_s
        self._connected = connected
        self._open: set[Call] = set()

    def new(self) -> Call:
        """A call, to go along with its request as the tag."""
        call: Call = asyncio.get_running_loop().create_future()
        self._open.add(call)
        return call

    def finish(self, event: Acknowledged | Dropped) -> bool:
        """Complete a caller's request; False if no caller waits."""
        call = event.request.tag
        if not isinstance(call, asyncio.Future):
            return False
        if call.done():
            return True
        if isinstance(event, Dropped):
            call.set_exception(UsageError(event.why))
        else:
            call.set_result(event)
        return True

    def give_up(self, why: str) -> bool:
        """Nobody will answer any more; whether anybody was waiting."""
        waiting = [call for call in self._open if not call.done()]
        for call in waiting:
            call.set_exception(ClientError(why))
            call.exception()  # who stopped waiting meanwhile does not want to know
        return bool(waiting)

    async def answered(self, call: Call, action: str) -> Acknowledged:
        """The broker's answer, for which only time spent connected counts; RefusedError if it refuses."""
        try:
            while not call.done():
                await asyncio.wait((call,), timeout=self._timeout_s)
                if not call.done() and self._connected():
                    raise NoAnswerError("no answer in time")
            answer = call.result()
        finally:
            self._open.discard(call)
            call.cancel()
        if answer.refusal is not None:
            raise refusal(action, answer.refusal, answer.properties)
        return answer
