"""What a client is subscribed to, so that it can subscribe again at a server that has lost its session."""

from geomq.mqtt.client.events import Request
from geomq.mqtt.codec.faults import ProtocolViolation
from geomq.mqtt.codec.packets import Suback, Subscribe, SubscribeRequest, Unsuback, Unsubscribe
from geomq.mqtt.codec.properties import Properties
from geomq.mqtt.codec.reasons import ReasonCode


class Subscriptions:
    """Topic filters with their options and properties, in the order they were first granted."""

    __slots__ = ("_granted",)

    def __init__(self) -> None:
        self._granted: dict[str, tuple[SubscribeRequest, Properties]] = {}

    def packets(self) -> list[Subscribe]:
        """The SUBSCRIBE packets that make them all anew."""
        return [Subscribe(0, (asked,), properties) for asked, properties in self._granted.values()]

    def restore(self, packet: Subscribe) -> None:
        for asked in packet.requests:
            self._granted[asked.topic_filter] = (asked, packet.properties)

    def answered(self, packet: Subscribe | Unsubscribe, reasons: tuple[ReasonCode, ...]) -> None:
        """The server answered; a filter it refuses is not subscribed to any more."""
        if isinstance(packet, Unsubscribe):
            for topic_filter in packet.topic_filters:
                self._granted.pop(topic_filter, None)
            return
        for asked, reason in zip(packet.requests, reasons, strict=True):
            if reason < ReasonCode.UNSPECIFIED_ERROR:
                self._granted[asked.topic_filter] = (asked, packet.properties)
            else:
                self._granted.pop(asked.topic_filter, None)


def reasons_for(request: Request, answer: Suback | Unsuback) -> tuple[ReasonCode, ...]:
    """The reason code of each topic filter; ProtocolViolation if the answer does not fit the request."""
    asked = request.packet
    if isinstance(answer, Suback) and isinstance(asked, Subscribe):
        count, reasons = len(asked.requests), answer.reasons
    elif isinstance(answer, Unsuback) and isinstance(asked, Unsubscribe):
        count = len(asked.topic_filters)
        reasons = answer.reasons or (ReasonCode.SUCCESS,) * count
    else:
        raise ProtocolViolation(f"{answer.type.name} for packet {answer.packet_id}, which does not match the request")
    if len(reasons) != count:
        raise ProtocolViolation(f"{answer.type.name} has {len(reasons)} reason codes for {count} topic filters")
    return reasons
