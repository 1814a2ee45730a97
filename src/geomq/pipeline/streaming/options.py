"""What users of the Spark source and sink may say, checked once, with one clear line for what is wrong.

Owns names, defaults and bounds. Spark passes all options as text and without regard to case.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from geomq.errors import GeomqError, UsageError
from geomq.geo import Fence, Location, fence_text, parse_fence, parse_location
from geomq.mqtt.codec.topics import check_filter
from geomq.mqtt.codec.types import V5, V311

BROKERS_MAX = 64
SESSIONS_MAX = 64
_PORTS = {"mqtt": 1883, "mqtts": 8883}
_ADDRESS = re.compile(r"(?:(mqtts?)://)?([A-Za-z0-9._-]+|\[[0-9a-fA-F:]+\])(?::(\d{1,5}))?")
_SESSION = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True)
class Address:
    """Where a broker listens."""

    host: str
    port: int
    tls: bool

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Login:
    """How to come in, the same for all brokers. `cafile` None trusts the system's authorities."""

    version: int = V5
    username: str | None = None
    password: str | None = None
    cafile: str | None = None


@dataclass(frozen=True)
class SourceOptions:
    """A stream of events. `acknowledge` None means: when Spark commits, if the broker is GeoMQ; else once spooled."""

    brokers: tuple[Address, ...]
    login: Login
    topic: str
    fence: Fence | None
    location: Location | None
    qos: int
    session: str
    sessions: int
    session_expiry_s: int
    acknowledge: str | None
    spool: Path
    spool_bytes_max: int
    events_max: int | None
    partition_events_max: int
    fail_on_data_loss: bool


@dataclass(frozen=True)
class ArchiveOptions:
    """A batch read of an archive."""

    path: Path
    topic: str | None
    fence: Fence | None


@dataclass(frozen=True)
class SinkOptions:
    """Where rows are published. `name` tells the batches of one query from those of another."""

    brokers: tuple[Address, ...]
    login: Login
    connections: int
    name: str | None
    timeout_s: int


class _Asked:
    """The options as given; what is not taken by name is unknown."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._left = {name.lower(): value for name, value in options.items()}

    def text(self, name: str, default: str | None = None) -> str | None:
        return self._left.pop(name.lower(), default)

    def needed(self, name: str, example: str) -> str:
        value = self.text(name)
        if not value:
            raise UsageError(f'option {name} is missing; set .option("{name}", "{example}")')
        return value

    def number(self, name: str, default: int, low: int, high: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        try:
            number = int(value)
        except ValueError:
            raise UsageError(f"option {name} must be a whole number, not {value[:40]!r}") from None
        if not low <= number <= high:
            raise UsageError(f"option {name} must be between {low} and {high}, not {number}")
        return number

    def choice(self, name: str, choices: Mapping[str, object], default: str | None) -> str | None:
        value = self.text(name, default)
        if value is not None and value not in choices:
            raise UsageError(f"option {name} must be {' or '.join(choices)}, not {value[:40]!r}")
        return value

    def finish(self, known: str) -> None:
        for name in sorted(self._left):
            raise UsageError(f"option {name} is unknown; known are {known}")


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of `readStream`."""
    asked = _Asked(options)
    addresses = parse_addresses(asked.needed("brokers", "127.0.0.1:1883"))
    topic = _topic(asked.needed("topic", "sensors/#"))
    fence = _fence(asked.text("fence"))
    default = _default_session(addresses, topic, fence)
    session = asked.text("session", default) or default
    if _SESSION.fullmatch(session) is None:
        raise UsageError(f"option session must be 1 to 64 letters, digits, '.', '_' or '-', not {session[:80]!r}")
    spool = asked.text("spool")
    acknowledge = asked.choice("acknowledge", {"commit": None, "spool": None}, None)
    found = SourceOptions(
        brokers=addresses,
        login=_login(asked),
        topic=topic,
        fence=fence,
        location=_location(asked.text("location")),
        qos=asked.number("qos", 1, 0, 1),
        session=session,
        sessions=asked.number("sessions", 1, 1, SESSIONS_MAX),
        session_expiry_s=asked.number("sessionExpirySeconds", 7 * 86_400, 60, 4_294_967_295),
        acknowledge=acknowledge,
        spool=Path(spool).absolute() if spool else _state_directory() / "spool",
        spool_bytes_max=asked.number("spoolBytesMax", 8 << 30, 1 << 20, 1 << 50),
        events_max=asked.number("maxEventsPerTrigger", 0, 1, 1 << 40) or None,
        partition_events_max=asked.number("maxEventsPerPartition", 25_000, 1, 1 << 31),
        fail_on_data_loss=asked.choice("failOnDataLoss", {"true": None, "false": None}, "true") == "true",
    )
    if (found.fence is not None or found.location is not None) and found.login.version != V5:
        raise UsageError("options fence and location need MQTT 5; leave option version alone")
    asked.finish(
        "brokers, topic, fence, location, qos, session, sessions, sessionExpirySeconds, acknowledge, spool,"
        " spoolBytesMax, maxEventsPerTrigger, maxEventsPerPartition, failOnDataLoss, version, username, password,"
        " passwordFile, cafile"
    )
    return found


def archive_options(options: Mapping[str, str]) -> ArchiveOptions:
    """The options of a batch `read`."""
    asked = _Asked(options)
    if asked.text("brokers") is not None:
        raise UsageError("a batch query reads an archive; to read from brokers use readStream")
    path = Path(asked.needed("path", "archive"))
    topic = asked.text("topic")
    found = ArchiveOptions(path.absolute(), None if topic is None else _topic(topic), _fence(asked.text("fence")))
    asked.finish("path, topic, fence")
    return found


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of `write` and `writeStream`."""
    asked = _Asked(options)
    addresses = parse_addresses(asked.needed("brokers", "127.0.0.1:1883"))
    asked.text("checkpointLocation")
    asked.text("path")
    name = asked.text("name")
    if name is not None and _SESSION.fullmatch(name) is None:
        raise UsageError(f"option name must be 1 to 64 letters, digits, '.', '_' or '-', not {name[:80]!r}")
    found = SinkOptions(
        brokers=addresses,
        login=_login(asked),
        connections=asked.number("connections", 8, 1, 64),
        name=name,
        timeout_s=asked.number("timeoutSeconds", 60, 1, 86_400),
    )
    asked.finish("brokers, connections, name, timeoutSeconds, version, username, password, passwordFile, cafile")
    return found


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Brokers as `host`, `host:port` or `mqtts://host:port`, separated by commas."""
    found = []
    for part in (part.strip() for part in text.split(",")):
        match = _ADDRESS.fullmatch(part)
        if match is None or int(match[3] or 1) not in range(1, 65_536):
            raise UsageError(f"option brokers: {part[:80]!r} is not host:port or mqtts://host:port")
        scheme = match[1] or "mqtt"
        found.append(Address(match[2].strip("[]"), int(match[3] or _PORTS[scheme]), scheme == "mqtts"))
    if len(set(found)) != len(found):
        raise UsageError("option brokers lists a broker twice")
    if len(found) > BROKERS_MAX:
        raise UsageError(f"option brokers lists more than {BROKERS_MAX} brokers")
    return tuple(found)


def _login(asked: _Asked) -> Login:
    versions = {"5": V5, "3.1.1": V311}
    version = versions[asked.choice("version", versions, "5") or "5"]
    username, password, file = asked.text("username"), asked.text("password"), asked.text("passwordFile")
    if file is not None:
        try:
            password = Path(file).read_text().strip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"option passwordFile: cannot read {file}: {error}") from None
    if password is not None and username is None:
        raise UsageError("option password needs option username")
    cafile = asked.text("cafile")
    if cafile is not None and not Path(cafile).is_file():
        raise UsageError(f"option cafile: {cafile} is not a file")
    return Login(version, username, password, cafile)


def _topic(text: str) -> str:
    try:
        check_filter(text)
    except GeomqError as error:
        raise UsageError(f"option topic: {error}") from None
    if text.startswith("$share/"):
        raise UsageError("option topic: leave out $share/...; use option sessions to share a subscription")
    return text


def _fence(text: str | None) -> Fence | None:
    try:
        return None if text is None else parse_fence(text)
    except GeomqError as error:
        raise UsageError(f"option fence: {error}") from None


def _location(text: str | None) -> Location | None:
    try:
        return None if text is None else parse_location(text)
    except GeomqError as error:
        raise UsageError(f"option location: {error}") from None


def _default_session(addresses: tuple[Address, ...], topic: str, fence: Fence | None) -> str:
    """The same for the same question, so that a restarted query finds its session."""
    what = [*map(str, addresses), topic, "" if fence is None else fence_text(fence)]
    return "spark-" + hashlib.sha256("\n".join(what).encode()).hexdigest()[:12]


def _state_directory() -> Path:
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "geomq"
