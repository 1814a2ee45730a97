"""Clients that acknowledge: publishers with several QoS 1 messages on their way, subscribers that answer each.

The whole works in one loop over all sockets. A publisher sends an identifier's PUBLISH again as soon as it is
acknowledged; in the end everything on its way is waited for.
"""

import select
import socket
from collections.abc import Sequence

from bench.measure import BenchError
from bench.swarm import READY_MAX, SPINS, TIMEOUT_S, clock

_PUBACK_SIZE = 4


class Acking:
    """One topic and one subscriber per publisher; all packets of the load have one length."""

    def __init__(
        self,
        publishers: Sequence[socket.socket],
        packets: Sequence[Sequence[bytes]],
        subscribers: Sequence[socket.socket],
    ) -> None:
        self._publishers = {each.fileno(): (each, mine) for each, mine in zip(publishers, packets, strict=True)}
        self._subscribers = {each.fileno(): each for each in subscribers}
        self._rest: dict[int, bytes] = dict.fromkeys([*self._publishers, *self._subscribers], b"")
        self._size = len(packets[0][0])
        topic_bytes = packets[0][0][3]
        self._id_at = 4 + topic_bytes
        self._in_flight = self._delivered = 0
        self._sending = True
        self._poll = select.epoll()
        for number in self._rest:
            self._poll.register(number, select.EPOLLIN)

    def run(self, seconds: float) -> int:
        """Publish for this long and wait for the rest; the number of acknowledged, and delivered, messages."""
        until = clock() + seconds
        self._sending, acknowledged, self._delivered = True, 0, 0
        for client, packets in self._publishers.values():
            client.sendall(b"".join(packets))
            self._in_flight += len(packets)
        patience = SPINS
        while self._in_flight or self._delivered < acknowledged:
            ready = self._poll.poll(0 if patience else TIMEOUT_S, READY_MAX)
            if not ready:
                if not patience:
                    raise BenchError(f"{self._in_flight} acknowledgements have not arrived within {TIMEOUT_S} s")
                patience -= 1
                continue
            patience = SPINS
            for number, _ in ready:
                if number in self._subscribers:
                    self._on_publishes(number)
                else:
                    acknowledged += self._on_acks(number)
            self._sending = clock() < until
        return acknowledged

    def _on_acks(self, number: int) -> int:
        client, packets = self._publishers[number]
        data = self._rest[number] + self._read(client)
        count, over = divmod(len(data), _PUBACK_SIZE)
        self._rest[number] = data[len(data) - over :]
        for start in range(0, count * _PUBACK_SIZE, _PUBACK_SIZE):
            if data[start : start + 2] != b"\x40\x02":
                raise BenchError(f"not an acknowledgement: {data[start : start + 8].hex()}")
        if self._sending:
            ids = range(0, count * _PUBACK_SIZE, _PUBACK_SIZE)
            client.sendall(b"".join([packets[data[start + 3] - 1] for start in ids]))
        else:
            self._in_flight -= count
        return count

    def _on_publishes(self, number: int) -> None:
        client = self._subscribers[number]
        data = self._rest[number] + self._read(client)
        count, over = divmod(len(data), self._size)
        self._rest[number] = data[len(data) - over :]
        size, at = self._size, self._id_at
        starts = range(0, count * size, size)
        if data[:1] != b"\x32" and count:
            raise BenchError(f"not a QoS 1 publish: {data[:8].hex()}")
        client.sendall(b"".join([b"\x40\x02" + data[start + at : start + at + 2] for start in starts]))
        self._delivered += count

    @staticmethod
    def _read(client: socket.socket) -> bytes:
        data = client.recv(1 << 16)
        if not data:
            raise BenchError("the broker closed a connection")
        return data
