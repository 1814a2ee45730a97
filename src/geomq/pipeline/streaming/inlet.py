"""Receives one MQTT session's events into a spool, in a thread, and acknowledges them when they are safe.

Safe means synced to the spool's disk, or, with `acknowledge` "commit", that Spark has committed them. A lost
connection is taken up again and the broker repeats what it has no acknowledgement for. A repeat of something whose
acknowledgement was held back is recognised by its packet identifier and not spooled again; a repeat of something
whose acknowledgement may have been lost is spooled again under the number it had.
"""

import contextlib
import json
import socket
import threading
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

from geomq.errors import GeomqError, ProtocolError, UsageError
from geomq.geo import fence_text, location_text
from geomq.mqtt.encode import encode
from geomq.mqtt.packets import Suback, Subscribe, SubscribeRequest
from geomq.mqtt.properties import Properties
from geomq.mqtt.types import V5
from geomq.mqtt.wire import read_varint
from geomq.pipeline.streaming.connection import ASK, PACKET_SIZE_MAX, Connection, Refused, packet_end
from geomq.pipeline.streaming.decode import packets_of, topic_end
from geomq.pipeline.streaming.options import Address, SourceOptions
from geomq.pipeline.streaming.spool import Spool

WINDOW = 65_535
KEEP_ALIVE_S = 30
QUIET_S = 1.0
GATHER_BYTES = 4 << 20
RETRY_S_MAX = 10.0
_PINGREQ = b"\xc0\0"


class Kept(NamedTuple):
    """A spooled packet, to recognise its repeat by."""

    number: int
    content: int


class Inlet(threading.Thread):
    """One session at one broker. `trouble` is why it gave up for good; `connected` once it has been there."""

    def __init__(self, options: SourceOptions, address: Address, member: int) -> None:
        super().__init__(name=f"geomq-inlet-{address}-{member}", daemon=True)
        self.key = f"{address}/{member}"
        self.address = address
        self.client_id = f"{options.session}-{member}"
        self.directory = inlet_directory(options, address, member)
        self.trouble: GeomqError | None = None
        self.connected = threading.Event()
        self.arrived_at = time.monotonic()
        self.lost = False
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
            self._spool = Spool(self.directory, keep=WINDOW)
            self._remember_question()
        return self._spool

    @property
    def settled(self) -> bool:
        """Whether all that waited at the broker when we came is here; a broker that does not tell falls silent."""
        if self._waiting is None:
            return time.monotonic() - self.arrived_at > QUIET_S
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
        pause_s = 0.1
        while not self._stopping:
            try:
                self._serve()
            except (Refused, UsageError) as error:
                self.trouble = error
                return
            except (OSError, ProtocolError) as error:
                if not self.connected.is_set():
                    self.trouble = Refused(f"broker {self.address} cannot be reached: {error}")
                    return
                self._pause(pause_s)
                pause_s = min(2 * pause_s, RETRY_S_MAX)
            except GeomqError as error:
                self.trouble = error
                return
            else:
                pause_s = 0.1

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
            properties=Properties(
                session_expiry_interval=options.session_expiry_s,
                receive_maximum=WINDOW,
                maximum_packet_size=PACKET_SIZE_MAX,
                user_properties=self._told(),
            ),
        )
        try:
            # What was held back for an earlier connection comes again on this one.
            self._held.clear()
            self._unacknowledged = self._received = 0
            self._waiting = connection.waiting
            self._holds = (options.acknowledge or ("commit" if connection.details else "spool")) == "commit"
            if not connection.connack.session_present:
                self._subscribe(connection)
            connection.watch(self._woken)
            self.arrived_at = time.monotonic()
            self.connected.set()
            self._receive(connection)
        finally:
            connection.close()

    def _told(self) -> tuple[tuple[str, str], ...]:
        place = self._options.location
        return (ASK,) if place is None else (ASK, ("geo-location", location_text(place)))

    def _subscribe(self, connection: Connection) -> None:
        options = self._options
        # A session the broker has forgotten took with it what it had not sent; only the user can judge that.
        marker = self.directory / "subscribed"
        self.lost |= marker.exists()
        if options.fence is not None and not connection.details:
            raise Refused(
                f"broker {self.address} does not say that it knows fences; option fence needs GeoMQ with [geo] details"
            )
        topic = f"$share/{options.session}/{options.topic}" if options.sessions > 1 else options.topic
        properties = Properties()
        if options.fence is not None:
            properties = Properties(user_properties=(("geo-fence", fence_text(options.fence)),))
        request = SubscribeRequest(topic, options.qos, retain_as_published=connection.version == V5)
        connection.send(encode(Subscribe(1, (request,), properties), connection.version))
        suback = connection.expect(Suback)
        if any(reason >= 0x80 for reason in suback.reasons):
            said = suback.properties.reason_string or suback.reasons[0].name.lower().replace("_", " ")
            raise Refused(f"broker {self.address} refuses the subscription to {options.topic!r}: {said}")
        marker.touch()

    def _receive(self, connection: Connection) -> None:
        """Until the connection breaks or we are to stop: gather, spool, sync, acknowledge."""
        sorter = Sorter(self.spool, connection.version, holds=self._holds)
        rest = self._take(connection, sorter, connection.rest)
        heard_at = asked_at = time.monotonic()
        while not self._stopping:
            arrived = self._gather(connection)
            now = time.monotonic()
            if arrived:
                heard_at = self.arrived_at = now
                rest = self._take(connection, sorter, rest + arrived)
            self._release(connection)
            if now - asked_at > KEEP_ALIVE_S / 3:
                connection.send(_PINGREQ)
                asked_at = now
            if now - heard_at > 2 * KEEP_ALIVE_S and not self._full:
                raise ConnectionResetError(f"broker {self.address} is silent")

    def _gather(self, connection: Connection) -> bytes:
        """What has arrived, after waiting for it; nothing while the spool is full."""
        if self._is_full():
            time.sleep(0.05)
            return b""
        data = connection.receive(KEEP_ALIVE_S / 4)
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        if data is None:
            return b""
        parts, size = [data], len(data)
        while size < GATHER_BYTES and (data := connection.receive(0.0)) is not None:
            parts.append(data)
            size += len(data)
        return b"".join(parts)

    def _take(self, connection: Connection, sorter: "Sorter", data: bytes) -> bytes:
        taken = sorter.take(data)
        if taken.appended:
            self.spool.sync()
        self._received += taken.events
        if taken.acks:
            if self._holds:
                self._held.extend(taken.acks)
                self._unacknowledged += len(b"".join(acks for _, acks in taken.acks)) // 4
            else:
                connection.send(b"".join([acks for _, acks in taken.acks]))
        return data[taken.end :]

    def _release(self, connection: Connection) -> None:
        """Acknowledge what Spark has committed."""
        committed, out = self.spool.committed, []
        while self._held and self._held[0][0] <= committed:
            out.append(self._held.popleft()[1])
        if out:
            data = b"".join(out)
            self._unacknowledged -= len(data) // 4
            connection.send(data)

    def _is_full(self) -> bool:
        self._full = self.spool.bytes > self._options.spool_bytes_max
        return self._full

    def _remember_question(self) -> None:
        """A session is for one question; another question needs another session."""
        options = self._options
        question = {"topic": options.topic, "fence": None if options.fence is None else fence_text(options.fence)}
        path = self.directory / "session.json"
        try:
            if path.exists() and json.loads(path.read_text()) != question:
                raise UsageError(
                    f"session {options.session!r} was opened for another topic or fence; give this query its own"
                )
            path.write_text(json.dumps(question))
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: {error}") from None


def inlet_directory(options: SourceOptions, address: Address, member: int) -> Path:
    return options.spool / options.session / f"{address.host}_{address.port}_{member}"


class Taken(NamedTuple):
    """What became of some bytes: how many were used, the events in them, if any were spooled, and what to answer."""

    end: int
    events: int
    appended: bool
    acks: list[tuple[int, bytes]]


class Sorter:
    """Cuts bytes into packets, spools the PUBLISH packets and makes their acknowledgements. One per connection."""

    def __init__(self, spool: Spool, version: int, *, holds: bool) -> None:
        self._spool = spool
        self._version = version
        self._holds = holds
        self._kept: dict[int, Kept] | None = None

    def take(self, data: bytes) -> Taken:
        """Everything whole; runs of new packets become one chunk."""
        pos = run = 0
        size, count, total, appended = len(data), 0, 0, False
        acks: list[bytes] = []
        result: list[tuple[int, bytes]] = []

        def finish(end: int) -> None:
            nonlocal count, appended, acks
            if count:
                chunk = self._spool.append(data[run:end], count)
                if acks:
                    result.append((chunk.end, b"".join(acks)))
                count, acks, appended = 0, [], True

        while pos + 1 < size:
            first, length = data[pos], data[pos + 1]
            body = pos + 2
            if length > 127:
                end = packet_end(data, pos)
                if end is None:
                    break
                while data[body - 1] > 127:
                    body += 1
            else:
                end = body + length
            if end > size:
                break
            if first >> 4 != 3:
                finish(pos)
                self._other(first, data[body:end])
                pos = run = end
                continue
            mark = body + 2 + (data[body] << 8 | data[body + 1]) if end - body >= 2 else end + 1
            if mark + (2 if first & 6 else 0) > end or first & 4:
                raise ProtocolError("the broker sent a PUBLISH that is none")
            total += 1
            if first & 8:
                finish(pos)
                appended |= self._repeated(data[pos:end], mark - pos, result)
                pos = run = end
                continue
            count += 1
            if first & 2:
                acks.append(b"\x40\x02" + data[mark : mark + 2])
            pos = end
        finish(pos)
        return Taken(pos, total, appended, result)

    def _other(self, first: int, body: bytes) -> None:
        """PINGRESP and late answers mean nothing here; DISCONNECT says why."""
        if first >> 4 == 14:
            code = body[0] if body else 0
            if code == 0x8E:
                raise Refused("another client took over the session; is the same query running twice?")
            raise ConnectionResetError(f"the broker ends the connection with reason 0x{code:02X}")
        if first >> 4 not in (9, 11, 13):
            raise ProtocolError(f"the broker sent a packet of type {first >> 4}")

    def _repeated(self, packet: bytes, mark: int, result: list[tuple[int, bytes]]) -> bool:
        """A packet the broker says it may have sent before; whether it was spooled."""
        if self._kept is None:
            self._kept = self._read_kept()
        packet_id = packet[mark : mark + 2]
        ack = b"\x40\x02" + packet_id
        kept = self._kept.get(int.from_bytes(packet_id, "big"))
        if kept is not None and self._holds and kept.number >= self._spool.committed:
            # Its acknowledgement was never sent, so the identifier cannot mean anything else.
            result.append((kept.number + 1, ack))
            return False
        repeats = None
        if kept is not None and kept.content == content_of(packet, self._version):
            repeats = kept.number
        chunk = self._spool.append(packet, 1, repeats=repeats)
        result.append((chunk.end, ack))
        return True

    def _read_kept(self) -> dict[int, Kept]:
        """The last spooled packet of each identifier."""
        found: dict[int, Kept] = {}
        for chunk, packets in self._spool.tail():
            for number, (start, end) in enumerate(packets_of(packets), chunk.first_id):
                packet = packets[start:end]
                if packet[0] & 6:
                    mark = topic_end(packet, 0)[1]
                    packet_id = int.from_bytes(packet[mark : mark + 2], "big")
                    found[packet_id] = Kept(number, content_of(packet, self._version))
        return found


def content_of(packet: bytes, version: int) -> int:
    """A fingerprint of topic and payload; properties may differ from one sending to the next."""
    begin, end = topic_end(packet, 0)
    start = end + 2
    if version == V5:
        with contextlib.suppress(ProtocolError):
            length, start = read_varint(packet, start, len(packet))
            start += length
    return hash((packet[begin:end], packet[start:]))
