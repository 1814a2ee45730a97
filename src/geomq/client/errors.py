"""What a client can run into: a connection that fails, or a broker that refuses."""

from geomq.errors import GeomqError


class ClientError(GeomqError):
    """The broker cannot be reached, or the connection to it is gone."""


class RefusedError(ClientError):
    """The broker refused a CONNECT, SUBSCRIBE or PUBLISH; `code` is the MQTT 5 reason code."""

    def __init__(self, action: str, code: int, reason: str) -> None:
        super().__init__(f"the broker refused to {action}: {reason} (0x{code:02X})")
        self.code = code
        self.reason = reason
