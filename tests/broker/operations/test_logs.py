"""Log lines: one each, with fields, and nothing a client sends can forge another."""

import json
import logging
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomq.broker.config.recording import Log
from geomq.broker.operations.logs import JsonFormatter, TextFormatter, setup_logging
from geomq.errors import ConfigError


def write(tmp_path: Path, style: Literal["text", "json"], level: Literal["info", "error"] = "info") -> str:
    file = tmp_path / "log"
    logger = setup_logging(Log(file=str(file), format=style, level=level))
    logger.getChild("server").info("client connected", extra={"client_id": "a b", "user": None, "port": 1883})
    try:
        raise ValueError("bad\nthing")
    except ValueError:
        logger.exception("failed")
    return file.read_text()


def test_text_lines_carry_fields(tmp_path: Path) -> None:
    first, second = write(tmp_path, "text").splitlines()
    assert first[10] == "T"
    assert first[24:] == ' info client connected client_id="a b" user=None port=1883'
    assert " error failed trace=" in second


def test_json_lines_carry_fields(tmp_path: Path) -> None:
    first, second = (json.loads(line) for line in write(tmp_path, "json").splitlines())
    assert (first["level"], first["logger"], first["message"]) == ("info", "geomq.server", "client connected")
    assert (first["client_id"], first["user"], first["port"]) == ("a b", None, 1883)
    assert "ValueError" in second["trace"]


def test_the_level_is_kept(tmp_path: Path) -> None:
    assert len(write(tmp_path, "text", "error").splitlines()) == 1


def test_setting_up_again_replaces_the_old_handler(tmp_path: Path) -> None:
    setup_logging(Log(file=str(tmp_path / "one")))
    logger = setup_logging(Log(file=str(tmp_path / "two")))
    logger.info("x")
    assert (tmp_path / "one").read_text() == ""
    assert len((tmp_path / "two").read_text().splitlines()) == 1


def test_an_impossible_file_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\[log\] file: cannot write .*: No such file or directory"):
        setup_logging(Log(file=str(tmp_path / "none" / "log")))


@given(st.text(max_size=50), st.text(max_size=50))
def test_no_text_can_forge_a_line_or_escape_codes(message: str, value: str) -> None:
    record = logging.makeLogRecord({"msg": message, "levelname": "INFO", "client_id": value})
    line = TextFormatter().format(record)
    assert line.isprintable()
    assert json.loads(JsonFormatter().format(record))["client_id"] == value
