"""TOML files to frozen structs of settings, or to one line that says which file, section and key is wrong.

One reader for every kind of settings: types and bounds, unknown sections and keys (with a suggestion), missing keys,
files that must exist. What a root struct's sections are is read from its annotations. Rules between keys are the
business of whoever owns the settings.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar, get_args, get_type_hints

import msgspec

from geomq.broker.config.keys import Key, SectionKeys, sections
from geomq.broker.config.section import Section
from geomq.errors import ConfigError

FILE_BYTES_MAX = 1_048_576
TABLES_MAX = 1_000

Root = TypeVar("Root", bound=Section)


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a settings file."""
    source = Path(path)
    try:
        with source.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{source}: cannot read it: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{source}: larger than {FILE_BYTES_MAX} bytes, not a config file")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{source}: not UTF-8 text") from None


class TableReader(Generic[Root]):
    """Reads one text; `name` is what errors call it, `base` where relative paths start.

    Files it names must be readable unless `files` is false.
    """

    def __init__(self, root: type[Root], name: str, base: Path, *, files: bool = True) -> None:
        self.root = root
        self.name = name
        self.base = base
        self.files = files

    def fail(self, where: str, what: str) -> NoReturn:
        raise ConfigError(f"{self.name}: {where}: {what}")

    def read(self, text: str) -> Root:
        """The settings in the text."""
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{self.name}: {error}") from None
        except RecursionError:
            raise ConfigError(f"{self.name}: nested too deeply") from None
        known = sections(self.root)
        for name, value in document.items():
            if name not in known:
                what = "section" if isinstance(value, dict | list) else "key outside any section"
                raise ConfigError(f"{self.name}: unknown {what} {name!r}{_suggest(name, known)}")
        hints = get_type_hints(self.root)
        values: dict[str, Any] = {}
        for name, section in known.items():
            hint = hints[name]
            if section.many:
                if name in document:
                    values[name] = self.tables(section, get_args(hint)[0], document[name])
            else:
                values[name] = self.table(section, hint, document.get(name, {}), section.title)
        return self.root(**values)

    def tables(self, section: SectionKeys, struct: type[Section], value: Any) -> tuple[Section, ...]:
        if not isinstance(value, list):
            self.fail(section.title, f"write {section.title} for each, not [{section.name}]")
        if len(value) > TABLES_MAX:
            self.fail(section.title, f"more than {TABLES_MAX} of them")
        return tuple(
            self.table(section, struct, entry, f"{section.title} #{number}") for number, entry in enumerate(value, 1)
        )

    def table(self, section: SectionKeys, struct: type[Section], value: Any, where: str) -> Section:
        if not isinstance(value, dict):
            self.fail(where, f"expected a table {section.title}")
        keys = {key.name: key for key in section.keys}
        for name in value:
            if name not in keys:
                self.fail(where, f"unknown key {name!r}{_suggest(name, keys) or _elsewhere(name, self.root)}")
        for key in section.keys:
            if key.required and key.name not in value:
                self.fail(where, f"{key.name} is missing")
        try:
            made = msgspec.convert(value, struct)
        except msgspec.ValidationError as error:
            reason, _, place = str(error).partition(" - at `$.")
            self.fail(where, f"{place.rstrip('`')}: {_plain(reason)}")
        return self.resolve(section.keys, made, where)

    def resolve(self, keys: Iterable[Key], made: Section, where: str) -> Section:
        absolute: dict[str, str] = {}
        for key in keys:
            value = getattr(made, key.name)
            if not key.path or value is None:
                continue
            if "\0" in value:
                self.fail(where, f"{key.name}: a path cannot contain NUL")
            absolute[key.name] = os.path.normpath(self.base / value)
            if self.files and key.path == "read" and not os.access(absolute[key.name], os.R_OK):
                self.fail(where, f"{key.name}: cannot read {absolute[key.name]}")
        return msgspec.structs.replace(made, **absolute) if absolute else made


def _suggest(name: str, known: Mapping[str, object]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def _elsewhere(name: str, root: type[Section]) -> str:
    for section in sorted(sections(root).values(), key=lambda section: section.many):
        if any(key.name == name for key in section.keys):
            return f"; it belongs in {section.title}"
    return ""


def _plain(reason: str) -> str:
    """msgspec's wording without its backquotes and type jargon."""
    reason = reason.replace("`", "")
    for jargon, word in (("str", "a text"), ("int", "a whole number"), ("bool", "true or false")):
        reason = re.sub(rf"\b{jargon}\b", word, reason)
    return reason.replace("array", "a list").replace("object", "a table").replace("null", "nothing")
