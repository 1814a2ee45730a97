"""MQTT 5 topic aliases, both ways. They live as long as one network connection."""

from geomq.mqtt.faults import ProtocolViolation
from geomq.mqtt.packets import Publish
from geomq.mqtt.reasons import ReasonCode


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
            raise ProtocolViolation(f"topic alias {alias} stands for no topic")
        return topic


class OutboundAliases:
    """Gives the first topics an alias each, up to what the receiver allows."""

    __slots__ = ("_aliases", "maximum")

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self._aliases: dict[str, int] = {}

    def alias(self, topic: str) -> tuple[int | None, bool]:
        """The alias to send, if any, and whether the receiver already knows it."""
        known = self._aliases.get(topic)
        if known is not None:
            return known, True
        if len(self._aliases) >= self.maximum:
            return None, False
        fresh = len(self._aliases) + 1
        self._aliases[topic] = fresh
        return fresh, False

    def forget(self, topic: str) -> None:
        """The packet that would have introduced this topic's alias was not sent."""
        if topic in self._aliases and self._aliases[topic] == len(self._aliases):
            del self._aliases[topic]
