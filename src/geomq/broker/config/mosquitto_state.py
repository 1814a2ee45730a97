"""What is gathered from a mosquitto.conf while it is read: listeners, the rules of each and those for all, bridges.

Also the two ways in which an option may fail to be carried over.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class OpensAccessError(ValueError):
    """Without this option somebody might come in, read or write who could not before."""


@dataclass(slots=True)
class Rules:
    """What Mosquitto calls security settings: of one listener or of all."""

    anonymous: bool | None = None
    files: dict[str, str] = field(default_factory=dict)
    empty_client_id: bool = True

    def let_anonymous_in(self, value: bool) -> None:
        self.anonymous = value

    def let_nameless_in(self, value: bool) -> None:
        self.empty_client_id = value


@dataclass(slots=True)
class ImportedListener:
    """One listener: the keys it will have, and what has to be settled first."""

    keys: dict[str, Any] = field(default_factory=dict)
    rules: Rules = field(default_factory=Rules)
    websocket: bool = False
    skip: bool = False
    identity: bool = False
    subject: bool = False
    where: dict[str, str] = field(default_factory=dict)
    """The lines of options that are judged in the end."""

    def leave_out(self) -> None:
        """It is not carried over."""
        self.skip = True

    def speak_websocket(self, value: bool) -> None:
        self.websocket = value

    def take_user_from(self, part: str, value: bool) -> None:
        """Mosquitto takes the user name from this part of the certificate, or no longer."""
        if part == "subject":
            self.subject = value
        else:
            self.identity = value


@dataclass(slots=True)
class Bridge:
    """One `connection` and its note."""

    where: str
    name: str
    note: int
    addresses: list[str] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)

    def take(self, key: str, value: str) -> None:
        """What is told of a bridge are its addresses and topics."""
        if key in ("address", "addresses"):
            self.addresses += value.split()
        elif key == "topic":
            self.topics.append(value)


@dataclass(slots=True)
class ImportState:
    """All of it. `line` is the option in hand as it is told to people."""

    base: Path
    line: str = ""
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    default: ImportedListener = field(default_factory=ImportedListener)
    listeners: list[ImportedListener] = field(default_factory=list)
    general: Rules = field(default_factory=Rules)
    per_listener: bool = False
    rules_seen: bool = False
    persistence: bool = False
    persistence_location: str | None = None
    bridges: list[Bridge] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    opening: list[str] = field(default_factory=list)

    def begin(self, line: str) -> None:
        """This option comes next."""
        self.line = line

    def keep_rules_apart(self, value: bool) -> None:
        """Whether security settings are those of the listener they stand under."""
        self.per_listener = value

    def persist(self, value: bool) -> None:
        self.persistence = value

    def persist_in(self, folder: str) -> None:
        self.persistence_location = folder

    def put(self, section: str, key: str, value: Any) -> None:
        self.sections.setdefault(section, {})[key] = value

    def note(self, text: str) -> None:
        self.notes.append(f"{self.line}: {text}")

    @property
    def listener(self) -> ImportedListener:
        """The listener that options apply to: the last one begun, or the default one."""
        return self.listeners[-1] if self.listeners else self.default

    @property
    def rules(self) -> Rules:
        """Whose security settings options apply to."""
        self.rules_seen = True
        return self.listener.rules if self.per_listener else self.general

    @property
    def local_only(self) -> bool:
        """Whether no listener is named, so that Mosquitto serves this machine alone."""
        return not self.listeners and not {"port", "host"} & self.default.keys.keys()

    @property
    def opens_default(self) -> bool:
        """Whether an option before the first listener makes Mosquitto open one more, for all interfaces."""
        default = self.default
        return bool(
            default.keys.keys() - {"topic_alias_maximum"}
            or default.websocket
            or default.identity
            or default.subject
            or "password_file" in default.rules.files
            or not default.rules.empty_client_id
        )

    def all_listeners(self) -> list[ImportedListener]:
        """Those named, and the default one if Mosquitto opens it."""
        return [self.default, *self.listeners] if self.opens_default or self.local_only else self.listeners
