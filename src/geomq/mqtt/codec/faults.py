"""What a peer can do wrong on the wire, with the reason code to answer before closing."""

from geomq.errors import ProtocolError
from geomq.mqtt.codec.reasons import ReasonCode


class MqttError(ProtocolError):
    """The peer broke MQTT: answer with `reason` where the version allows it, then close."""

    def __init__(self, message: str, reason: ReasonCode) -> None:
        super().__init__(message)
        self.reason = reason


class MalformedPacket(MqttError):  # noqa: N818
    """Bytes that cannot be parsed as the packet they claim to be."""

    def __init__(self, message: str, reason: ReasonCode = ReasonCode.MALFORMED_PACKET) -> None:
        super().__init__(message, reason)


class ProtocolViolation(MqttError):  # noqa: N818
    """A well-formed packet that is not allowed here or now."""

    def __init__(self, message: str, reason: ReasonCode = ReasonCode.PROTOCOL_ERROR) -> None:
        super().__init__(message, reason)
