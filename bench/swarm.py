"""The load generator's clients: plain sockets, packets encoded beforehand, received bytes counted.

It must be far cheaper than any broker, so a received packet is never decoded while measuring: all packets of a load
have one length, and the number of bytes says how many came. What they contain is checked once, in a first round.
"""

import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Self

from bench.measure import BenchError
from geomq.mqtt.codec.encode import encode
from geomq.mqtt.codec.packets import Connect, Publish, Subscribe, SubscribeRequest
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.types import V5, V311

WAVE = 50
"""Connections opened at once; Mosquitto lets 100 wait."""

TIMEOUT_S = 20
CHUNK = 1 << 18
READY_MAX = 4096
SPINS = 200
"""Looks at the sockets before going to sleep: a broker should not have to pay for waking the load generator."""


class Swarm:
    """Many clients of one broker. Those that subscribe are watched for what they receive."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._poll = select.epoll()
        self._receive: dict[int, Callable[[memoryview], int]] = {}
        self._buffer = memoryview(bytearray(CHUNK))
        self.sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave without a word, all at once."""
        for each in self.sockets:
            each.close()
        self.sockets.clear()
        self._receive.clear()
        self._poll.close()

    def join(self, connects: Sequence[bytes], *, receive_buffer: int | None = None) -> list[socket.socket]:
        """Connect one client per CONNECT packet."""
        joined: list[socket.socket] = []
        for start in range(0, len(connects), WAVE):
            wave = [self._open(receive_buffer) for _ in connects[start : start + WAVE]]
            for each, packet in zip(wave, connects[start : start + WAVE], strict=True):
                each.sendall(packet)
            for each in wave:
                answer = read_packet(each)
                if answer[0] != 0x20 or answer[3] != 0:
                    raise BenchError(f"the broker refuses a client: {answer[:8].hex()}")
            joined += wave
        return joined

    def _open(self, receive_buffer: int | None) -> socket.socket:
        made = socket.socket()
        self.sockets.append(made)
        if receive_buffer is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        made.connect(("127.0.0.1", self._port))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            made.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", TIMEOUT_S, 0))
        return made

    def ask(self, clients: Sequence[socket.socket], packets: Sequence[bytes], first: int) -> None:
        """Send each client's packet and await an answer that starts with the byte `first`."""
        for start in range(0, len(clients), WAVE):
            wave = clients[start : start + WAVE]
            for each, packet in zip(wave, packets[start : start + WAVE], strict=True):
                each.sendall(packet)
            for each in wave:
                answer = read_packet(each)
                if answer[0] != first or (first == 0x90 and answer[-1] >= 0x80):
                    raise BenchError(f"the broker refuses a request: {answer[:8].hex()}")

    def watch(self, clients: Iterable[socket.socket]) -> None:
        """From now on take what these clients receive."""
        for each in clients:
            self._receive[each.fileno()] = each.recv_into
            self._poll.register(each.fileno(), select.EPOLLIN)

    def unwatch(self, clients: Iterable[socket.socket]) -> None:
        for each in clients:
            del self._receive[each.fileno()]
            self._poll.unregister(each.fileno())

    def take(self, expected: int) -> None:
        """Receive exactly this many bytes, from whichever watched clients."""
        receive, poll, buffer = self._receive, self._poll.poll, self._buffer
        patience = SPINS
        while expected > 0:
            ready = poll(0 if patience else TIMEOUT_S, READY_MAX)
            if not ready:
                if not patience:
                    raise BenchError(f"{expected} bytes have not arrived within {TIMEOUT_S} s")
                patience -= 1
                continue
            patience = SPINS
            for number, _ in ready:
                count = receive[number](buffer)
                if not count:
                    raise BenchError("the broker closed a connection")
                expected -= count
        if expected:
            raise BenchError(f"{-expected} bytes more than expected")

    def collect(self, expected: int) -> dict[int, bytes]:
        """As `take`, but keep the bytes, by file number."""
        got: dict[int, bytearray] = {}
        while expected > 0:
            ready = self._poll.poll(TIMEOUT_S, READY_MAX)
            if not ready:
                raise BenchError(f"{expected} bytes have not arrived within {TIMEOUT_S} s")
            for number, _ in ready:
                count = self._receive[number](self._buffer)
                if not count:
                    raise BenchError("the broker closed a connection")
                got.setdefault(number, bytearray()).extend(self._buffer[:count])
                expected -= count
        return {number: bytes(data) for number, data in got.items()}

    def settle(self, quiet_s: float = 0.05) -> int:
        """Throw away what still comes until nothing does; how many bytes that was."""
        count = 0
        while ready := self._poll.poll(quiet_s, READY_MAX):
            for number, _ in ready:
                got = self._receive[number](self._buffer)
                if not got:
                    raise BenchError("the broker closed a connection")
                count += got
        return count


def read_packet(client: socket.socket) -> bytes:
    """One whole packet, waiting for it."""
    data = _exactly(client, 2)
    while data[-1] & 0x80:
        data += _exactly(client, 1)
    length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data[1:]))
    return data + _exactly(client, length)


def _exactly(client: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        with contextlib.suppress(BlockingIOError):
            more = client.recv(count - len(data))
            if not more:
                raise BenchError("the broker closed a connection")
            data += more
            continue
        raise BenchError(f"no answer within {TIMEOUT_S} s")
    return data


def connect(name: str, *, version: int = V311, clean: bool = True, properties: Properties = NO_PROPERTIES) -> bytes:
    return encode(Connect(name, version, clean, 0, properties=properties), version)


def subscribe(topic: str, *, qos: int = 0, version: int = V311) -> bytes:
    return encode(Subscribe(1, (SubscribeRequest(topic, qos),)), version)


def publish(topic: str, payload: bytes, *, qos: int = 0, packet_id: int = 0, version: int = V311) -> bytes:
    return encode(Publish(topic, payload, qos, packet_id=packet_id), version)


def clock() -> float:
    return time.perf_counter()


__all__ = ["V5", "V311", "Swarm", "clock", "connect", "publish", "read_packet", "subscribe"]
