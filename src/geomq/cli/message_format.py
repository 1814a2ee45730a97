"""How `geomq sub -F` prints an event: the formats of mosquitto_sub, read once and filled in for every event.

`%` and a letter is something of the event, `@` and a letter something of the time, `\\` begins a control character.
"""

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from geomq.errors import UsageError

if TYPE_CHECKING:
    from geomq.client import Message

ESCAPES = {"\\": b"\\", "0": b"\0", "a": b"\a", "e": b"\x1b", "n": b"\n", "r": b"\r", "t": b"\t", "v": b"\v"}
TIMES = frozenset("aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZ")
WIDTH_MAX = 1_000
_PIECE = re.compile(r"%(?P<flag>[-0]?)(?P<width>\d{0,4})(?:\.(?P<most>\d{1,4}))?(?P<what>.)", re.DOTALL)


class Arrival(NamedTuple):
    """An event and when it came, in nanoseconds since 1970."""

    message: "Message"
    at_ns: int

    @property
    def local(self) -> datetime:
        return datetime.fromtimestamp(self.at_ns / 1e9).astimezone()


Piece = Callable[[Arrival], bytes]
Value = Callable[[Arrival], bytes | str | int | None]


def read_format(text: str) -> Piece:
    """What prints an event so; UsageError if the format is invalid."""
    pieces: list[Piece] = []
    position = 0
    while position < len(text):
        char = text[position]
        read = _READERS.get(char)
        piece, position = (_plain(char), position + 1) if read is None else read(text, position)
        pieces.append(piece)
    return lambda arrival: b"".join([piece(arrival) for piece in pieces])


def as_json(arrival: Arrival, payload: Any) -> bytes:
    """The event as mosquitto_sub prints it for %j."""
    message = arrival.message
    found: dict[str, Any] = {
        "tst": f"{arrival.local:%Y-%m-%dT%H:%M:%S.%f%z}",
        "topic": message.topic,
        "qos": message.qos,
        "retain": int(message.retain),
        "payloadlen": len(message.payload),
    }
    if message.qos:
        found["mid"] = message.packet_id
    properties = {
        "user-properties": dict(message.user),
        "content-type": message.content_type,
        "response-topic": message.response_topic,
        "correlation-data": None if message.correlation_data is None else _text(message.correlation_data),
        "payload-format-indicator": message.payload_format,
        "message-expiry-interval": message.expiry_s,
        "subscription-identifier": next(iter(message.subscription_identifiers), None),
    }
    told = {name: value for name, value in properties.items() if value is not None and value != {}}
    if told:
        found["properties"] = told
    return json.dumps({**found, "payload": payload}, ensure_ascii=False, separators=(",", ":")).encode()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return _text(data)


VALUES: dict[str, Value] = {
    "%": lambda _: "%",
    "A": lambda _: None,
    "C": lambda arrival: arrival.message.content_type,
    "D": lambda arrival: arrival.message.correlation_data,
    "E": lambda arrival: arrival.message.expiry_s,
    "F": lambda arrival: arrival.message.payload_format,
    "I": lambda arrival: f"{arrival.local:%Y-%m-%dT%H:%M:%S%z}",
    "J": lambda arrival: as_json(arrival, _parsed(arrival.message.payload)),
    "P": lambda arrival: " ".join(f"{name}:{value}" for name, value in arrival.message.user),
    "R": lambda arrival: arrival.message.response_topic,
    "S": lambda arrival: " ".join(map(str, arrival.message.subscription_identifiers)),
    "U": lambda arrival: f"{arrival.at_ns // 10**9}.{arrival.at_ns % 10**9:09}",
    "X": lambda arrival: arrival.message.payload.hex().upper(),
    "j": lambda arrival: as_json(arrival, _text(arrival.message.payload)),
    "l": lambda arrival: len(arrival.message.payload),
    "m": lambda arrival: arrival.message.packet_id,
    "p": lambda arrival: arrival.message.payload,
    "q": lambda arrival: arrival.message.qos,
    "r": lambda arrival: int(arrival.message.retain),
    "t": lambda arrival: arrival.message.topic,
    "x": lambda arrival: arrival.message.payload.hex(),
}


def _plain(char: str) -> Piece:
    data = char.encode("utf-8", "surrogateescape")
    return lambda _: data


def _escape(text: str, position: int) -> tuple[Piece, int]:
    char = text[position + 1 : position + 2]
    if char not in ESCAPES:
        raise UsageError(f"--format: \\{char} is no control character; behind \\ may come {' '.join(ESCAPES)}")
    data = ESCAPES[char]
    return lambda _: data, position + 2


def _time(text: str, position: int) -> tuple[Piece, int]:
    char = text[position + 1 : position + 2]
    if char == "@":
        return lambda _: b"@", position + 2
    if char == "N":
        return lambda arrival: b"%09d" % (arrival.at_ns % 10**9), position + 2
    if char not in TIMES:
        raise UsageError(f"--format: @{char} says nothing of the time; @@ is an @")
    return lambda arrival: arrival.local.strftime(f"%{char}").encode(), position + 2


def _value(text: str, position: int) -> tuple[Piece, int]:
    found = _PIECE.match(text, position)
    if found is None or found["what"] not in VALUES:
        raise UsageError(f"--format: {text[position : position + 3]!r} says nothing of an event; %% is a %")
    width = int(found["width"] or 0)
    if width > WIDTH_MAX:
        raise UsageError(f"--format: at most {WIDTH_MAX} wide")
    value, most = VALUES[found["what"]], None if found["most"] is None else int(found["most"])
    fill = b"0" if found["flag"] == "0" else b" "

    def piece(arrival: Arrival) -> bytes:
        given = value(arrival)
        data = (
            b""
            if given is None
            else given
            if isinstance(given, bytes)
            else str(given).encode("utf-8", "surrogateescape")
        )
        if most is not None and not isinstance(given, int):
            data = data[:most]
        if found["flag"] == "-":
            return data.ljust(width)
        return data.rjust(width, fill if isinstance(given, int) else b" ")

    return piece, found.end()


_READERS: dict[str, Callable[[str, int], tuple[Piece, int]]] = {"%": _value, "@": _time, "\\": _escape}
