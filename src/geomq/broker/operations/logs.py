"""Logging of a broker: one line an entry, as text or JSON, with fields beside the message.

Fields are what a caller passes as `extra`. Whatever a client can put into them cannot start a new line or send
escape codes to a terminal. The pure packages do not log; only drivers do.
"""

import json
import logging
import logging.handlers
import sys
from datetime import UTC, datetime

from geomq.broker.config.recording import Log
from geomq.errors import ConfigError

ROOT = "geomq"
VALUE_CHARS_MAX = 500

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z info message key=value key="two words"`."""

    def format(self, record: logging.LogRecord) -> str:
        parts = [_time(record), record.levelname.lower(), printable(record.getMessage())]
        parts += [f"{key}={_text_value(value)}" for key, value in _fields(record).items()]
        if record.exc_info:
            parts.append(f"trace={_text_value(self.formatException(record.exc_info))}")
        return " ".join(parts)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry.update(_fields(record))
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def setup_logging(config: Log) -> logging.Logger:
    """Make the `geomq` logger write as the config says; call again after a reload."""
    logger = logging.getLogger(ROOT)
    try:
        handler: logging.Handler = (
            logging.StreamHandler(sys.stderr)
            if config.file is None
            else logging.handlers.WatchedFileHandler(config.file, encoding="utf-8")
        )
    except OSError as error:
        raise ConfigError(f"[log] file: cannot write {config.file}: {error.strerror}") from None
    handler.setFormatter(JsonFormatter() if config.format == "json" else TextFormatter())
    for old in list(logger.handlers):
        logger.removeHandler(old)
        old.close()
    logger.addHandler(handler)
    logger.setLevel(config.level.upper())
    logger.propagate = False
    return logger


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


def printable(text: str) -> str:
    """The text with what is not printable, such as the escape codes of terminals, spelt out."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _text_value(value: object) -> str:
    text = str(value)[:VALUE_CHARS_MAX] if not isinstance(value, str) or "\n" not in value else value
    if text and text.isprintable() and not any(char in text for char in ' "=\\'):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())
