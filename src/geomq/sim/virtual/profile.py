"""Who a client is, and how it introduces itself when it connects."""

from dataclasses import dataclass

from geomq.mqtt.codec.packets import Connect, Will
from geomq.mqtt.codec.properties import NO_PROPERTIES, Properties
from geomq.mqtt.codec.types import V5
from geomq.sim.virtual.records import KEEP_ALIVE_S, Place


@dataclass(frozen=True, slots=True)
class Profile:
    """Who a client is. One with `expiry_s` 0 has a session that ends with its connection."""

    name: str
    version: int = V5
    expiry_s: int = 3_600
    roams: bool = False
    will_topic: str | None = None
    will_delay_s: int = 0

    @property
    def kept(self) -> bool:
        return self.expiry_s > 0

    def connect_packet(self, place: Place | None, number: int, *, ends: bool) -> Connect:
        """For its connection of this number; with `ends` nothing is to be left of the session."""
        user: list[tuple[str, str]] = []
        if place is not None:
            user.append(("geo-location", place.text))
        user.append(("geo-roam", "1") if self.roams else ("geo-stay", "1"))
        expiry_s = 0 if ends else self.expiry_s
        properties = Properties(session_expiry_interval=expiry_s, user_properties=tuple(user))
        return Connect(
            self.name,
            self.version,
            clean_start=ends or not self.kept,
            keep_alive=KEEP_ALIVE_S,
            will=None if ends else self._will(number),
            properties=properties if self.version == V5 else NO_PROPERTIES,
        )

    def _will(self, number: int) -> Will | None:
        if self.will_topic is None:
            return None
        properties = Properties(will_delay_interval=self.will_delay_s) if self.will_delay_s else NO_PROPERTIES
        return Will(self.will_topic, f"will:{self.name}:{number}".encode(), 1, properties=properties)
