"""Receives one MQTT session's events into a spool, in a thread, and acknowledges them when they are safe.

Safe means synced to the spool's disk, or, with `acknowledge` "commit", that Spark has committed them. A lost
connection is taken up again and the broker repeats what it has no acknowledgement for. A repeat of something whose
acknowledgement was held back is recognised by its packet identifier and not spooled again; a repeat of something
whose acknowledgement may have been lost is spooled again under the number it had.
"""

import contextlib
import json
import random
import socket
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from geomq.errors import DataError, GeomqError, ProtocolError, UsageError
from geomq.geo import fence_text, location_text
from geomq.mqtt.client.backoff import Backoff
from geomq.mqtt.client.events import Acknowledged, Ended, Request, words
from geomq.mqtt.codec.packets import SubscribeRequest
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.mqtt.codec.types import V5
from geomq.pipeline.streaming.connection import Connection, RefusedForGood
from geomq.pipeline.streaming.options import Address, SourceOptions
from geomq.pipeline.streaming.packet_spooler import PacketSpooler
from geomq.pipeline.streaming.spool import Spool
from geomq.vocabulary import DETAILS_PROPERTY, FENCE_PROPERTY, LOCATION_PROPERTY

WINDOW = 65_535
KEEP_ALIVE_S = 30
QUIET_S = 1.0
GATHER_BYTES = 4 << 20
RETRY_S = (0.1, 10.0)
STABLE_S = 10.0
"""A connection that lasted this long was good: the next pause is short again."""


class Receiver(threading.Thread):
    """One session at one broker. `trouble` is why it gave up for good; `connected` once it has been there."""

    def __init__(self, options: SourceOptions, address: Address, member: int) -> None:
        super().__init__(name=f"geomq-receiver-{address}-{member}", daemon=True)
        self.key = f"{address}/{member}"
        self.address = address
        self.client_id = f"{options.session}-{member}"
        self.directory = receiver_directory(options, address, member)
        self.trouble: GeomqError | None = None
        self.connected = threading.Event()
        self.lost = False
        self._silent = False
        self._waiting: int | None = None
        self._received = 0
        self._options = options
        self._spool: Spool | None = None
        self._held: deque[tuple[int, bytes]] = deque()
        self._holds = options.acknowledge == "commit"
        self._stopping = False
        self._full = False
        self._unacknowledged = 0
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)

    # What the source calls.

    @property
    def spool(self) -> Spool:
        if self._spool is None:
            self._spool = Spool(self.directory, keep=WINDOW, bytes_max=self._options.spool_bytes_max)
            self._remember_question()
        return self._spool

    @property
    def tells(self) -> bool:
        """Whether the broker vouched for the details of what is spooled."""
        return not (self.directory / "untold").exists()

    @property
    def settled(self) -> bool:
        """Whether all that waited at the broker when we came is here; a broker that does not tell falls silent."""
        if self._waiting is None:
            return self._silent
        return self._received >= self._waiting

    @property
    def window_full(self) -> bool:
        """Whether the broker waits for acknowledgements that wait for Spark."""
        return self._holds and self._unacknowledged >= WINDOW

    def commit(self, number: int) -> None:
        """Spark is done with everything before `number`."""
        self.spool.commit(number)
        with contextlib.suppress(OSError):
            self._wake.send(b".")

    def request_stop(self) -> None:
        self._stopping = True
        with contextlib.suppress(OSError):
            self._wake.send(b".")

    def stop(self) -> None:
        self.request_stop()
        if self.is_alive():
            self.join(5.0)
        if self._spool is not None:
            self._spool.close()
        self._wake.close()
        self._woken.close()

    # The thread.

    def run(self) -> None:
        backoff = Backoff(RETRY_S[0], RETRY_S[1])
        while not self._stopping:
            began = time.monotonic()
            try:
                self._serve()
            except (RefusedForGood, UsageError) as error:
                self.trouble = error
                return
            except (OSError, ProtocolError) as error:
                if not self.connected.is_set():
                    self.trouble = RefusedForGood(f"broker {self.address} cannot be reached: {error}")
                    return
                if time.monotonic() - began > STABLE_S:
                    backoff.reset()
                self._pause(backoff.pause_s(random.random()))
            except GeomqError as error:
                self.trouble = error
                return
            except Exception as error:
                # A reader that is gone must not look like a topic where nothing happens.
                self.trouble = DataError(f"reading from broker {self.address} failed: {error!r}")
                return

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < deadline:
            time.sleep(0.05)

    def _serve(self) -> None:
        options = self._options
        connection = Connection.open(
            self.address,
            options.login,
            self.client_id,
            clean=False,
            keep_alive_s=KEEP_ALIVE_S,
            receive_max=WINDOW,
            properties=Properties(
                session_expiry_interval=options.session_expiry_s, user_properties=self._user_properties()
            ),
        )
        try:
            # What was held back for an earlier connection comes again on this one.
            self._held.clear()
            self._unacknowledged = self._received = 0
            self._waiting = connection.waiting
            self._holds = (options.acknowledge or ("commit" if connection.details else "spool")) == "commit"
            self._note_promise(connection)
            self._take_up(connection)
            connection.link.watch(self._woken)
            self._silent = False
            self.connected.set()
            self._receive(connection)
        finally:
            connection.close()

    def _user_properties(self) -> tuple[tuple[str, str], ...]:
        place, ask = self._options.location, (DETAILS_PROPERTY, "1")
        return (ask,) if place is None else (ask, (LOCATION_PROPERTY, location_text(place)))

    def _note_promise(self, connection: Connection) -> None:
        untold = self.spool.directory / "untold"
        if connection.details:
            untold.unlink(missing_ok=True)
        else:
            untold.touch()

    def _take_up(self, connection: Connection) -> None:
        """See to it that the session is subscribed, and that one the broker has forgotten does not go unnoticed."""
        subscribed, lost = self.directory / "subscribed", self.directory / "lost"
        if not connection.connack.session_present:
            # It took with it what it had not sent; only the user can judge that, so it is said until they have.
            if subscribed.exists():
                lost.touch()
                subscribed.unlink()
            self.spool.sync()
            self._subscribed(connection.link.ask(self._subscribe(connection)), since=self.spool.end)
        elif not subscribed.exists():
            # Nobody knows whether it ever came to that. What the session holds may arrive before the answer.
            self._subscribe(connection)
        if not self._options.fail_on_data_loss:
            lost.unlink(missing_ok=True)
        self.lost |= lost.exists()

    def _subscribed(self, answer: Acknowledged, *, since: int = 0) -> None:
        """The broker's answer. The session's packets are those from number `since` on."""
        if answer.refusal is not None:
            raise RefusedForGood(
                f"broker {self.address} refused the subscription to {self._options.topic!r}:"
                f" {answer.properties.reason_string or words(answer.refusal).lower()}"
            )
        (self.directory / "subscribed").write_text(str(since))

    def _since(self) -> int:
        try:
            return int((self.directory / "subscribed").read_text())
        except (OSError, ValueError):
            return 0

    def _subscribe(self, connection: Connection) -> Request:
        options = self._options
        if options.fence is not None and not connection.details:
            raise RefusedForGood(
                f"broker {self.address} does not announce fences; option fence needs GeoMQ with [geo] details"
            )
        topic = f"$share/{options.session}/{options.topic}" if options.sessions > 1 else options.topic
        properties = Properties()
        if options.fence is not None:
            properties = Properties(user_properties=((FENCE_PROPERTY, fence_text(options.fence)),))
        modern = connection.version == V5
        request = SubscribeRequest(topic, options.qos, retain_as_published=modern, retain_handling=int(modern))
        return connection.session.subscribe(request, properties=properties)

    def _receive(self, connection: Connection) -> None:
        """Until the connection breaks or we are to stop: gather, spool, sync, acknowledge."""
        packet_spooler = PacketSpooler(
            self.spool,
            connection.version,
            holds=self._holds,
            since=self._since(),
            other=lambda packet: self._other(connection, packet),
        )
        rest = b""
        while not self._stopping:
            arrived = self._gather(connection)
            if arrived:
                connection.session.heard(time.monotonic())
                rest = self._take(connection, packet_spooler, rest + arrived)
            elif self._full:
                connection.session.heard(time.monotonic())  # the broker may well have written: nobody reads
            self._release(connection)
            connection.link.flush()

    def _other(self, connection: Connection, packet: bytes) -> None:
        """What is no PUBLISH is the session's; DISCONNECT and the answer to SUBSCRIBE mean something here."""
        connection.session.receive(packet, time.monotonic())
        for event in connection.session.take_events():
            if isinstance(event, Ended):
                if event.reason == ReasonCode.SESSION_TAKEN_OVER:
                    raise RefusedForGood("another client took over the session; is the same query running twice?")
                raise connection.link.ended(event)
            if isinstance(event, Acknowledged):
                self._subscribed(event)

    def _gather(self, connection: Connection) -> bytes:
        """What has arrived, after waiting for it; nothing while the spool is full."""
        if self._is_full():
            self._silent = True
            time.sleep(0.05)
            return b""
        began = time.monotonic()
        data = connection.link.receive(KEEP_ALIVE_S / 4 if self._silent or self._waiting is not None else QUIET_S)
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        if data is None:
            # Only who waited knows that nothing came: a clock beside this thread would count time it did not get.
            self._silent |= time.monotonic() - began >= QUIET_S
            return b""
        self._silent = False
        parts, size = [data], len(data)
        # A broker may close right after it said why: what it said counts, and the next call finds it gone.
        with contextlib.suppress(OSError):
            while size < GATHER_BYTES and (data := connection.link.receive(0.0)) is not None:
                parts.append(data)
                size += len(data)
        return b"".join(parts)

    def _take(self, connection: Connection, packet_spooler: PacketSpooler, data: bytes) -> bytes:
        taken = packet_spooler.take(data)
        if taken.appended:
            self.spool.sync()
        self._received += taken.events
        if taken.acks:
            if self._holds:
                self._held.extend(taken.acks)
                self._unacknowledged += len(b"".join(acks for _, acks in taken.acks)) // 4
            else:
                connection.link.send(b"".join([acks for _, acks in taken.acks]))
        return data[taken.end :]

    def _release(self, connection: Connection) -> None:
        """Acknowledge what Spark has committed."""
        committed, out = self.spool.committed, []
        while self._held and self._held[0][0] <= committed:
            out.append(self._held.popleft()[1])
        if out:
            data = b"".join(out)
            self._unacknowledged -= len(data) // 4
            connection.link.send(data)

    def _is_full(self) -> bool:
        self._full = self.spool.is_full
        return self._full

    def _remember_question(self) -> None:
        """A session is for one question; another question needs another session."""
        options = self._options
        question = {"topic": options.topic, "fence": None if options.fence is None else fence_text(options.fence)}
        path = self.directory / "session.json"
        try:
            asked = json.loads(path.read_text()) if path.exists() else question
            before: dict[str, Any] = {"sessions": options.sessions, **asked}
            shared_among = before.pop("sessions")
            if before != question:
                raise UsageError(
                    f"session {options.session!r} was opened for another topic or fence; give this query its own"
                )
            if options.sessions != shared_among and not options.sessions > shared_among > 1:
                # Members that nobody reads keep their share; one that never shared would get everything once more.
                raise UsageError(
                    f"session {options.session!r} was opened with option sessions {shared_among}, which may only"
                    " grow, from 2 on; give this query its own session"
                )
            path.write_text(json.dumps({**question, "sessions": options.sessions}))
        except (OSError, ValueError, TypeError) as error:
            raise UsageError(f"{path}: {error}") from None


def receiver_directory(options: SourceOptions, address: Address, member: int) -> Path:
    return options.spool / options.session / f"{address.host}_{address.port}_{member}"
