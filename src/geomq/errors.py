"""The one exception tree of GeoMQ.

    GeomqError
    ├── UsageError              the person at the keyboard asked for something impossible
    │   ├── ConfigError         a configuration file says something impossible
    │   ├── DataError           a data file is missing, damaged or of another shape
    │   └── MissingModuleError  a package of an extra is not installed
    ├── GeometryError           a location or fence that is not one
    ├── TopicError              a topic name or filter that is not one
    ├── ProtocolError           a peer or client sent bytes that break its protocol
    │   └── MqttError           ... that of MQTT; geomq.mqtt.codec.faults has the kinds
    ├── StoreError              the disk does not do what a store needs; geomq.broker.storage.errors
    └── ClientError             a broker did not do what the client asked; geomq.client.errors

Every message is one line that says what was wrong and, where it helps, what to do. The command line prints
it and exits with `exit_code`; a broker answers with a reason code and lives on.
"""

from typing import ClassVar

import msgspec

UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""All that msgspec raises at bytes from outside; ValueError is for text that is not UTF-8."""


class GeomqError(Exception):
    """The root: anything GeoMQ raises on purpose."""

    exit_code: ClassVar[int] = 2


class UsageError(GeomqError):
    """The request cannot be carried out as asked."""


class ConfigError(UsageError):
    """A configuration value is missing, unknown or out of range."""


class DataError(UsageError):
    """A data file is missing, damaged or of another shape."""


class MissingModuleError(UsageError):
    """A package that comes only with an extra of GeoMQ is not installed."""

    def __init__(self, module: str, *, extra: str = "spark") -> None:
        super().__init__(
            f"this needs {module}; install it with: pip install 'geomq[{extra}]', "
            f"or in a clone with: .venv/bin/pip install -e '.[{extra}]'"
        )


class GeometryError(GeomqError):
    """An invalid location or fence."""


class TopicError(GeomqError):
    """Text that is no MQTT topic name or filter."""


class ProtocolError(GeomqError):
    """Bytes that break the protocol they claim to speak."""
