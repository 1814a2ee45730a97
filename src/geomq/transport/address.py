"""Where a broker is and how it is reached."""

import ssl
from typing import NamedTuple, Self

PORTS = {(False, False): 1883, (True, False): 8883, (False, True): 9001, (True, True): 9002}
"""The usual port by (TLS, WebSocket)."""


class Address(NamedTuple):
    """A broker's address; `path` is that of a WebSocket, None for plain MQTT."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    path: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def sent_to(self, reference: str) -> Self:
        """The address that a server names, reached in the same way; without a port it is the same one."""
        host, _, port = reference.rpartition(":")
        if not host or not port.isdecimal() or (":" in host and not host.endswith("]")):
            return self._replace(host=reference.strip("[]"))
        return self._replace(host=host.strip("[]"), port=int(port))
