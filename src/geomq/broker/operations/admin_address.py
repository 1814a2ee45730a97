"""Addresses of admin APIs as people give them, and where a token may be sent: never in the clear to another machine."""

from urllib.parse import urlsplit

from geomq.broker.config.settings import is_loopback
from geomq.errors import UsageError


def check_address(address: str, token: str | None) -> str:
    """The URL of an admin API, with http:// by default; refuses an invalid one, and one where everybody on
    the way would read the token."""
    url = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(url)
        proper = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        proper = False
    if not proper:
        raise UsageError(f"{address!r} is not the address of an admin API, such as http://127.0.0.1:9883")
    if token is not None and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise UsageError(f"{url} would send the token unencrypted; use https or a tunnel")
    return url
