"""Where the admin API is served, and the token that opens it."""

from pathlib import Path

from starlette.types import ASGIApp

from geomq.broker.config.settings import Admin
from geomq.broker.operations.http_server import HttpServer
from geomq.errors import ConfigError

TOKEN_CHARS_MIN, TOKEN_BYTES_MAX = 16, 4_096


class AdminServer(HttpServer):
    """Serves the admin API between `start` and `stop`."""

    def __init__(self, app: ASGIApp, config: Admin) -> None:
        super().__init__(app, config.host, config.port, what="[admin]")


def load_token(config: Admin) -> str | None:
    """The bearer token from its file, or None if there is no such file in the config."""
    return None if config.token_file is None else read_token(Path(config.token_file))


def read_token(path: Path) -> str:
    """The one line of a token file."""
    try:
        with path.open("rb") as file:
            token = file.read(TOKEN_BYTES_MAX).decode().strip()
    except OSError as error:
        raise ConfigError(f"{path}: cannot read it: {error.strerror}") from None
    except UnicodeDecodeError:
        token = ""
    if len(token) < TOKEN_CHARS_MIN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"{path}: one line with a token of at least {TOKEN_CHARS_MIN} characters")
    return token
