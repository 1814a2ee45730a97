"""Whether the server is there: PINGREQs, when they are due, when the server is taken for gone, and what a ping answers.

A ping that a program asked for is passed once the server has answered it and has finished all that was sent before it.
"""

from collections import deque
from collections.abc import Iterable

from geomq.mqtt.client.events import Request


class _Mark:
    """An answered ping, and how many of the requests sent before it are not finished."""

    __slots__ = ("before", "request")

    def __init__(self, request: Request, before: int) -> None:
        self.request = request
        self.before = before


class Pings:
    """Those of one session. `ping_s` is how often to ask, 0 for never; times in seconds."""

    __slots__ = ("_answer_s", "_asked", "_asked_at", "_marks", "heard_at", "ping_s", "sent_at")

    def __init__(self, answer_s: float) -> None:
        self._answer_s = answer_s
        self._asked: deque[Request | None] = deque()
        self._marks: deque[_Mark] = deque()
        self.ping_s = 0.0
        self.heard_at = self.sent_at = self._asked_at = 0.0

    def start(self, now: float) -> None:
        """A connection begins."""
        self.ping_s = 0.0
        self.heard_at = self.sent_at = now
        self._asked.clear()
        self._marks.clear()

    @property
    def connack_at(self) -> float:
        """When CONNACK must be there."""
        return self.sent_at + self._answer_s

    def silent(self, now: float) -> bool:
        """Whether a ping is unanswered, and nothing else was heard, for so long that the server is taken for gone."""
        return bool(self._asked) and now >= self._silent_at

    @property
    def _silent_at(self) -> float:
        return max(self._asked_at, self.heard_at) + self._answer_s

    def deadline(self) -> float | None:
        """When something is to be done."""
        if not self.ping_s:
            return None
        if self._asked:
            return min(self.sent_at + self.ping_s, self._silent_at)
        return min(self.heard_at, self.sent_at) + self.ping_s

    def ask(self, now: float, request: Request | None = None) -> None:
        """A PINGREQ is being sent, for a program or for ourselves."""
        if not self._asked:
            self._asked_at = now
        self._asked.append(request)

    def answer(self, under_way: Iterable[Request]) -> list[Request]:
        """PINGRESP: the pings that are passed now."""
        request = self._asked.popleft() if self._asked else None
        if request is None:
            return []
        self._marks.append(_Mark(request, sum(one.place < request.place for one in under_way)))
        return self._passed()

    @property
    def marked(self) -> bool:
        """Whether an answered ping waits for something to be finished."""
        return bool(self._marks)

    def finish(self, request: Request) -> list[Request]:
        """The request is finished: the pings that are passed now."""
        for mark in self._marks:
            mark.before -= request.place < mark.request.place
        return self._passed()

    def _passed(self) -> list[Request]:
        passed = []
        while self._marks and not self._marks[0].before:
            passed.append(self._marks.popleft().request)
        return passed
