"""A reliable, ordered link between two brokers over anything that may lose, repeat or reorder frames.

Bytes and sockets are the driver's affair: frames go in, frames and messages come out. Frames carry the sender's
epoch (a random number that it draws at every start) and a running number; the receiver takes them in order, ignores
what it had and asks again for what is missing. What a peer has not acknowledged is sent again after a pause, and after
every reconnection; but of batches of QoS 0 events only the number, and after the peer's restart of all events of QoS 0:
it may have had them, and no longer knows. No frame outlives the connection that it was sent on.

While the link is down only events and deliveries of QoS 1 and 2 wait (they were promised to somebody, and their number
is bounded). Subscriptions, locations and control messages are not kept: when the link comes up the strategy repeats
what the peer must know. That may be far more at once than there may be events, and none of it may be left out.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Literal, NamedTuple

import msgspec

from geomq.routing.core.messages import Message, is_promised
from geomq.routing.core.plan import NOTHING
from geomq.routing.wire.carried import is_batch, is_event, size_of

WINDOW = 256
"""How many unacknowledged messages may be on the wire at once, unless the driver says otherwise."""

OUTBOX_BYTES_MAX = 1 << 29
"""Bytes of events that wait for a peer, unless the driver says otherwise."""
BACKLOG_MAX = 5_000_000
"""A peer that lets this many messages wait while its link is up is left, and sent everything anew when it is back."""


RUN_BYTES_MAX = 1 << 15
"""When a frame of several messages is full, so that nothing waits for long behind it: by their sizes and so much for
each:"""
MESSAGE_BYTES = 64


class Frame(msgspec.Struct, frozen=True):
    """Anything on the wire between two brokers."""


class Hello(Frame, frozen=True):
    """The sender's epoch, the number its next data frames start from, and how far it has received the other side's."""

    epoch: int
    starts_at: int
    heard_epoch: int | None
    heard_next: int
    reply: bool


class Data(Frame, frozen=True):
    epoch: int
    number: int
    message: Message


class Run(Frame, frozen=True):
    """Messages that follow each other; the first has the number."""

    epoch: int
    number: int
    messages: tuple[Message, ...]


class Ack(Frame, frozen=True):
    """Everything of that epoch before `next_number` has been taken in."""

    epoch: int
    next_number: int


class LinkOutput(NamedTuple):
    """What to put on the wire, what to hand to the node, whether the peer has just come up, what is given up (and
    the numbers of what had one), and whether so much waits that the wire is to be cut."""

    frames: Sequence[Frame]
    messages: Sequence[Message]
    came_up: bool = False
    lost: tuple[Message, ...] = ()
    lost_numbers: tuple[int, ...] = ()
    overrun: bool = False


TAKEN = LinkOutput((), ())

WhenFull = Literal["slow", "drop_oldest", "drop_newest", "disconnect"]
"""What becomes of an event for which there is no room: it goes beyond the end, or one is given up."""
OnFull = Callable[["Link", Message, int], WhenFull]
"""Asked about an event or delivery, and so many bytes, for which there is no room."""
MayGo = Callable[[Message], bool]
"""Whether an event that waits may be given up for a newer one."""
LOOKED_AT = 64
"""So many of the oldest events are asked for."""


def anything_may_go(_: Message) -> bool:
    """The oldest is given up, whatever it is."""
    return True


class Link:
    """One broker's end of the link to one peer."""

    def __init__(
        self,
        *,
        epoch: int,
        retry_ms: float = 500.0,
        outbox_max: int = 10_000,
        outbox_bytes_max: int = OUTBOX_BYTES_MAX,
        window: int = WINDOW,
        backlog_max: int = BACKLOG_MAX,
        unsent: Iterable[Message] = (),
        on_full: OnFull | None = None,
        may_go: MayGo = anything_may_go,
    ) -> None:
        self.state: Literal["down", "greeting", "up"] = "down"
        self.dropped = 0
        self.epoch = epoch
        self._retry_ms = retry_ms
        self._outbox_max = outbox_max
        self._outbox_bytes_max = outbox_bytes_max
        self._window = window
        self._backlog_max = backlog_max
        self._on_full, self._may_go = on_full, may_go
        self._outbox: deque[Message] = deque(unsent)
        self._events = deque(number for number, message in enumerate(self._outbox) if is_event(message))
        """The numbers of the events and deliveries in the outbox."""
        self._bytes = self._other_bytes = 0
        """Of the events and deliveries in the outbox, and of all else."""
        self._weigh()
        self.acknowledged = 0
        """The number of the first message of the outbox."""
        self._next = 0
        """The number of the next message to go on the wire."""
        self._sent = 0
        """All messages with a smaller number have been on the wire before."""
        self._heard_epoch: int | None = None
        self._heard_next = 0
        self._retry_at: float | None = None
        while len(self._events) > 2 * outbox_max:
            self._drop(0)

    def connected(self, *, now: float) -> LinkOutput:
        """The wire is there: greet."""
        self.state = "greeting"
        self._retry_at = now + self._retry_ms
        return LinkOutput([self._hello(reply=False)], [])

    def disconnected(self) -> None:
        """The wire is gone."""
        self.state = "down"
        self._retry_at = None

    def durable(self) -> list[Message]:
        """What a restarted broker has to send again: promised messages not yet acknowledged."""
        return [message for message in self._outbox if is_promised(message)]

    @property
    def is_clear(self) -> bool:
        """Whether the peer is there, and everything it was sent is on the wire."""
        return self.state == "up" and self._next == self.acknowledged + len(self._outbox)

    @property
    def waiting(self) -> int:
        """How many messages the peer has not acknowledged."""
        return len(self._outbox)

    @property
    def waiting_bytes(self) -> int:
        """What those take on the wire, roughly."""
        return self._bytes + self._other_bytes + MESSAGE_BYTES * len(self._outbox)

    @property
    def latest(self) -> int:
        """The number of the message sent last."""
        return self.acknowledged + len(self._outbox) - 1

    def send(self, message: Message, *, now: float) -> LinkOutput:
        """Take a message for the peer; what goes on the wire at once comes back."""
        output = self.take(message)
        return output._replace(frames=[*output.frames, *self.pump(now=now)])

    def take(self, message: Message) -> LinkOutput:
        """Take a message for the peer, to be pumped soon."""
        if self.state != "up" and not is_promised(message):
            return LinkOutput([], [], lost=(message,))
        if len(self._outbox) >= self._backlog_max and self.state == "up":
            given_up = self._cut_short()
            output = self.take(message)
            return output._replace(overrun=True, lost=(*given_up, *output.lost))
        if not is_event(message):
            room = self._backlog_max if message.durable else self._outbox_max
            if self.state != "up" and len(self._outbox) >= room:
                return LinkOutput([], [], lost=(message,))
            self._outbox.append(message)
            self._other_bytes += size_of(message)
            return TAKEN
        then = self._when_full(message) if self._is_full() else "slow"
        numbers, lost = self._make_room() if then == "drop_oldest" else ([], [])
        if then != "slow" and not numbers:
            return LinkOutput([], [], lost=(message,))
        self._events.append(self.acknowledged + len(self._outbox))
        self._outbox.append(message)
        self._bytes += size_of(message)
        if not numbers:
            return TAKEN
        frames: list[Frame] = [self._hello(reply=True)] if self.state == "up" else []
        return LinkOutput(frames, [], lost=tuple(lost), lost_numbers=tuple(numbers))

    def pump(self, *, now: float) -> list[Data]:
        """What may go on the wire now of what was taken."""
        if self.state != "up":
            return []
        if self._retry_at is None and self._outbox:
            self._retry_at = now + self._retry_ms
        return self._pump()

    def _when_full(self, message: Message) -> WhenFull:
        return "drop_oldest" if self._on_full is None else self._on_full(self, message, size_of(message))

    def _make_room(self) -> tuple[list[int], list[Message]]:
        """Give up the oldest events that may go, until there is room: their numbers, and those that are lost by it."""
        numbers, lost = list[int](), list[Message]()
        while self._is_full():
            first, outbox = self.acknowledged, self._outbox
            oldest = enumerate(islice(self._events, LOOKED_AT))
            place = next((place for place, number in oldest if self._may_go(outbox[number - first])), None)
            if place is None:
                break
            numbers.append(self._events[place])
            lost += self._drop(place)
        return numbers, lost

    def _is_full(self) -> bool:
        return not self.fits(0, 0)

    def room(self, size: int) -> int:
        """How many more events may wait, of so many bytes together."""
        return self._outbox_max - len(self._events) if self._bytes + size < self._outbox_bytes_max else 0

    def fits(self, events: int, size: int) -> bool:
        """Whether there is room, the last events not counted: so many, of this size."""
        return len(self._events) - events < self._outbox_max and self._bytes - size < self._outbox_bytes_max

    @property
    def overfull(self) -> bool:
        """Whether twice as much waits as there should."""
        return len(self._events) >= 2 * self._outbox_max or self._bytes >= 2 * self._outbox_bytes_max

    def clear(self) -> None:
        """Nobody waits for it any more."""
        self._outbox.clear()
        self._events.clear()
        self._weigh()

    def _cut_short(self) -> tuple[Message, ...]:
        """Keep what is promised, return what is lost; the strategy repeats the rest when the link is up again."""
        outbox, first = self._outbox, self.acknowledged
        waiting = [outbox[number - first] for number in self._events]
        lost = tuple([each for each in waiting if not is_promised(each) and each is not NOTHING])
        self._outbox = deque(each if is_promised(each) else NOTHING for each in self._outbox)
        self._weigh()
        self.disconnected()
        return lost

    def _weigh(self) -> None:
        """Find out how many bytes there are."""
        self._bytes = sum(size_of(message) for message in self._outbox if is_event(message))
        self._other_bytes = sum(size_of(message) for message in self._outbox if not is_event(message))

    def receive(self, frame: Frame, *, now: float) -> LinkOutput:
        """Take a frame off the wire. A frame that makes no sense here is ignored."""
        if self.state == "down":
            return LinkOutput([], [])
        match frame:
            case Hello():
                return self._greeted(frame, now)
            case Data(epoch=epoch, number=number, message=message):
                return self._heard(epoch, number, (message,))
            case Run(epoch=epoch, number=number, messages=messages):
                return self._heard(epoch, number, messages)
            case Ack(epoch=epoch, next_number=next_number):
                if epoch == self.epoch:
                    self._acknowledged(next_number, now)
                    return LinkOutput(self._pump(), [])
        return LinkOutput([], [])

    def next_deadline(self) -> float | None:
        return self._retry_at

    def on_deadline(self, *, now: float) -> LinkOutput:
        """Nothing was received for too long: send it again."""
        if self._retry_at is None or now < self._retry_at:
            return LinkOutput([], [])
        if self.state == "greeting":
            return self.connected(now=now)
        self._retry_at = now + self._retry_ms if self._outbox else None
        self._next = self.acknowledged
        return LinkOutput([self._hello(reply=True), *self._pump()], [])

    def _greeted(self, hello: Hello, now: float) -> LinkOutput:
        came_up = self.state == "greeting" or hello.epoch != self._heard_epoch
        if hello.epoch != self._heard_epoch:
            self._heard_epoch, self._heard_next = hello.epoch, hello.starts_at
            self._give_up_sent()
        elif hello.starts_at > self._heard_next:
            self._heard_next = hello.starts_at  # the peer's bounded outbox dropped what lay between
        if hello.heard_epoch == self.epoch:
            self._acknowledged(hello.heard_next, now)
        self.state = "up"
        self._retry_at = now + self._retry_ms if self._outbox else None
        frames: list[Frame] = [] if hello.reply else [self._hello(reply=True)]
        if came_up:
            self._next = self.acknowledged
        return LinkOutput([*frames, *self._pump()], [], came_up)

    def _give_up_sent(self) -> None:
        """Not to send again what nobody waits for: events of QoS 0 that have been on the wire."""
        for number in self._events:
            message = self._outbox[number - self.acknowledged]
            if number < self._sent and not is_promised(message):
                self._bytes -= size_of(message)
                self._outbox[number - self.acknowledged] = NOTHING

    def _heard(self, epoch: int, number: int, messages: tuple[Message, ...]) -> LinkOutput:
        """Take in what is new of messages that follow each other, unless some before them are missing."""
        if epoch != self._heard_epoch:
            return LinkOutput([], [])  # not greeted yet, or from before the peer's restart
        known = self._heard_next - number
        new = messages[known:] if known >= 0 else ()
        self._heard_next += len(new)
        return LinkOutput([Ack(epoch, self._heard_next)], new)

    def _acknowledged(self, next_number: int, now: float) -> None:
        if next_number > self.acknowledged + len(self._outbox):
            return  # it cannot have received what was not sent
        while self.acknowledged < next_number:
            self._forget_first()
            self._retry_at = now + self._retry_ms
        if not self._outbox and self.state == "up":
            self._retry_at = None

    def _hello(self, *, reply: bool) -> Hello:
        return Hello(self.epoch, self.acknowledged, self._heard_epoch, self._heard_next, reply)

    def _drop(self, event: int) -> list[Message]:
        """Give up an event, counted from the oldest; if others stand before it, something else takes its number."""
        place = self._events[event] - self.acknowledged
        del self._events[event]
        lost, self._outbox[place] = self._outbox[place], NOTHING
        self._bytes -= size_of(lost)
        while self._outbox and self._is_idle(self._outbox[0]):
            self._forget_first()
        if lost is NOTHING:
            return []  # it is on the wire already
        self.dropped += 1
        return [lost]

    def _is_idle(self, message: Message) -> bool:
        """Whether nobody waits for the first message. What will be repeated anyway does not stand in the way for long
        while the link is down; nor, in the end, does anything else."""
        if message is NOTHING or self.state == "up":
            return message is NOTHING
        return not is_promised(message) or len(self._outbox) >= 2 * self._outbox_max

    def _forget_first(self) -> None:
        first = self._outbox.popleft()
        if self._events and self._events[0] == self.acknowledged:
            self._events.popleft()
            self._bytes -= size_of(first)
        else:
            self._other_bytes -= size_of(first)
        self.acknowledged += 1
        self._next = max(self._next, self.acknowledged)

    def _pump(self) -> list[Data]:
        """What the window lets go on the wire now."""
        first, outbox = self.acknowledged, self._outbox
        start, end = self._next - first, min(self._window, len(outbox))
        if end <= start:
            return []
        self._next = first + end
        self._sent = max(self._sent, self._next)
        frames = []
        for place in range(start, end):
            message = outbox[place]
            frames.append(Data(self.epoch, first + place, message))
            kept = message.once_sent()
            if kept is not message:
                self._bytes -= size_of(message)
                outbox[place] = kept
        return frames


def runs(frames: Sequence[Data]) -> Sequence[Data | Run]:
    """The same in fewer frames: messages that follow each other share one. But events, the oldest of which are dropped
    when too many wait, go without others, and batches of them alone."""
    if len(frames) < 2:
        return frames
    found: list[Data | Run] = []
    run: list[Data] = []
    of_events, size = False, 0
    for data in frames:
        carries_events = is_event(data.message)
        if run and (carries_events != of_events or size >= RUN_BYTES_MAX or data.number != run[-1].number + 1):
            found += _run(run)
            run, size = [], 0
        of_events = carries_events
        if carries_events and is_batch(data.message):
            found += (*_run(run), data)
            run, size = [], 0
        else:
            run.append(data)
            size += MESSAGE_BYTES + size_of(data.message)
    return [*found, *_run(run)]


def _run(run: list[Data]) -> Sequence[Data | Run]:
    if len(run) < 2:
        return run
    return [Run(run[0].epoch, run[0].number, tuple([data.message for data in run]))]
