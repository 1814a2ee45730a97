"""MQTT 5 topic aliases, both ways. They live as long as one network connection."""

from geomq.mqtt.codec.faults import ProtocolViolation
from geomq.mqtt.codec.packets import Publish
from geomq.mqtt.codec.reasons import ReasonCode


class InboundAliases:
    """What the sender's aliases stand for."""

    __slots__ = ("_topics", "maximum")

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self._topics: dict[int, str] = {}

    def resolve(self, publish: Publish) -> str:
        """The topic the PUBLISH is for; remembers the alias if it comes with a topic."""
        alias = publish.properties.topic_alias
        if alias is None:
            return publish.topic
        if alias > self.maximum:
            raise ProtocolViolation(
                f"topic alias {alias} is above the agreed maximum of {self.maximum}",
                ReasonCode.TOPIC_ALIAS_INVALID,
            )
        if publish.topic:
            self._topics[alias] = publish.topic
            return publish.topic
        topic = self._topics.get(alias)
        if topic is None:
            raise ProtocolViolation(f"topic alias {alias} has not been set")
        return topic


class OutboundAliases:
    """Gives the first topics an alias each, up to what the receiver allows.

    Packets of QoS 1 and 2 may have to wait while packets of QoS 0 that were made after them go out: an alias that only
    they have introduced is not known yet to whoever receives one of QoS 0.
    """

    __slots__ = ("_aliases", "_waiting", "maximum")

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self._aliases: dict[str, int] = {}
        self._waiting: set[str] = set()

    def alias(self, topic: str, *, waits: bool) -> tuple[int | None, bool]:
        """The alias to send, if any, and whether the receiver of a packet that `waits`, or does not, knows it."""
        known = self._aliases.get(topic)
        if known is not None:
            return known, waits or topic not in self._waiting
        return (len(self._aliases) + 1, False) if len(self._aliases) < self.maximum else (None, False)

    def introduced(self, topic: str, *, waits: bool) -> None:
        """A packet with the topic and its alias is sent."""
        if topic not in self._aliases:
            self._aliases[topic] = len(self._aliases) + 1
            if waits:
                self._waiting.add(topic)
        elif not waits:
            self._waiting.discard(topic)
