"""A Config as commented TOML that loads back to the same Config. The one place that writes the format."""

import json
from collections.abc import Mapping
from typing import Any

from geomq.broker.config.keys import SectionKeys, sections
from geomq.broker.config.section import Section
from geomq.broker.config.settings import Config

WIDTH = 110


def config_text(config: Config) -> str:
    """The whole effective config; keys that are not set stand as comments."""
    lines = ["# GeoMQ broker configuration: every key with its value in effect."]
    for name, section in sections().items():
        value = getattr(config, name)
        if section.many:
            lines += ["", f"# {section.text}"]
            for entry in value:
                lines += ["", *_table(section, entry)]
            if not value:
                lines += [f"# {section.title}"]
        else:
            lines += ["", f"# {section.text}", *_table(section, value)]
    return "\n".join(lines) + "\n"


def _table(section: SectionKeys, values: Section) -> list[str]:
    lines = [section.title]
    for key in section.keys:
        lines += [f"# {line}" for line in _wrap(key.text)]
        value = getattr(values, key.name)
        lines.append(f"# {key.name} =" if value is None else f"{key.name} = {toml_value(value)}")
    return lines


def _wrap(text: str) -> list[str]:
    lines, current = [], ""
    for word in text.split():
        if current and len(current) + 1 + len(word) > WIDTH - 2:
            lines.append(current)
            current = word
        else:
            current = f"{current} {word}".strip()
    return [*lines, current]


def toml_value(value: Any) -> str:
    """One value in TOML; tables inside values are inline."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_value(key)} = {toml_value(entry)}" for key, entry in value.items()) + "}"
    return "[" + ", ".join(map(toml_value, value)) + "]"
