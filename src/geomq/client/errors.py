"""What a client can run into: a connection that fails, or a broker that refuses."""

from geomq.errors import GeomqError


class ClientError(GeomqError):
    """The broker cannot be reached, or the connection to it is gone."""

    exit_code = 3


class NoAnswerError(ClientError):
    """The broker is there and does not answer in time."""

    exit_code = 27


class BrokenProtocolError(ClientError):
    """What the broker sent is not MQTT, or not what it may send then."""

    exit_code = 5


class RefusedError(ClientError):
    """The broker refused a SUBSCRIBE or PUBLISH; `code` is the MQTT 5 reason code."""

    exit_code = 5

    def __init__(self, action: str, code: int, reason: str) -> None:
        super().__init__(f"the broker refused to {action}: {reason} (0x{code:02X})")
        self.code = code
        self.reason = reason


class NotLetInError(RefusedError):
    """The broker refused a CONNECT."""

    exit_code = 4


KINDS: dict[str | None, type[ClientError]] = {"broken": BrokenProtocolError, "late": NoAnswerError}
"""The errors of connections that ended because something was wrong with the broker."""
