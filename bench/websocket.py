"""What WebSocket frames cost the broker for each MQTT packet: its own against those of the `websockets` library.

    python -m bench.websocket

Both unmask a client's frame and frame the same bytes for another client. In this process, without a socket.
"""

import os
import time
from collections.abc import Callable
from functools import partial

from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from geomq.broker.connections.websocket import FrameReader, frame

SIZES = (20, 200, 1_000, 16_000, 1_000_000)
READ_BYTES = 1 << 18
BYTES, PACKETS = 20_000_000, 20_000
ROUNDS = 7


def _own() -> Callable[[bytes], object]:
    reader = FrameReader()
    return lambda data: [frame(Opcode.BINARY, payload) for _, payload in reader.feed(data)]


def _library() -> Callable[[bytes], object]:
    protocol = ServerProtocol(state=State.OPEN, max_size=None)

    def relay(data: bytes) -> list[bytes]:
        protocol.receive_data(data)
        for event in protocol.events_received():
            assert isinstance(event, Frame)
            protocol.send_binary(bytes(event.data))
        return protocol.data_to_send()

    return relay


def _cpu_us(make: Callable[[], Callable[[bytes], object]], reads: list[bytes], packets: int) -> float:
    relay = make()
    before = time.process_time_ns()
    for data in reads:
        relay(data)
    return (time.process_time_ns() - before) / packets / 1_000


def _reads(size: int, together: int) -> tuple[list[bytes], int]:
    """What arrives in one read each, and how many packets that is."""
    packets = max(together, min(PACKETS, BYTES // size))
    data = Frame(Opcode.BINARY, os.urandom(size)).serialize(mask=True) * together
    parts = [data[start : start + READ_BYTES] for start in range(0, len(data), READ_BYTES)]
    return parts * (packets // together), packets // together * together


def main() -> None:
    print(f"{'bytes':>9} {'in a read':>10} {'own':>10} {'library':>10}   CPU us for each packet")
    for size in SIZES:
        for together in (1, 20):
            measure = partial(_cpu_us, reads=(made := _reads(size, together))[0], packets=made[1])
            rounds = [(measure(_own), measure(_library)) for _ in range(ROUNDS)]
            own, library = (min(each) for each in zip(*rounds, strict=True))
            print(f"{size:>9} {together:>10} {own:>10.2f} {library:>10.2f}")


if __name__ == "__main__":
    main()
