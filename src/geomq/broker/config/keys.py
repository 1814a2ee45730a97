"""What the config structs say about themselves: sections, keys, defaults, descriptions.

One reading of the annotations in `config`, shared by the loader, the printer and the differ. Holds no values.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec

from geomq.broker.config.section import Section
from geomq.broker.config.settings import Config


class Key(NamedTuple):
    """One key of a section; `path` is "read" or "write" if it names a file."""

    name: str
    text: str
    reload: bool
    path: str
    default: Any
    required: bool


class SectionKeys(NamedTuple):
    """One table of the file; `many` is an array of tables."""

    name: str
    many: bool
    text: str
    keys: tuple[Key, ...]

    @property
    def title(self) -> str:
        return f"[[{self.name}]]" if self.many else f"[{self.name}]"


@cache
def sections(root: type[Section] = Config) -> dict[str, SectionKeys]:
    """All sections by name, in the order of the file."""
    found = {}
    hints = get_type_hints(root)
    for entry in msgspec.structs.fields(root):
        hint = hints[entry.name]
        many = not isinstance(hint, type) or not issubclass(hint, Section)
        struct = get_args(hint)[0] if many else hint
        found[entry.name] = SectionKeys(entry.name, many, str(struct.__doc__), tuple(_keys(struct)))
    return found


def _keys(struct: type[Section]) -> Iterator[Key]:
    hints = get_type_hints(struct, include_extras=True)
    for entry in msgspec.structs.fields(struct):
        meta = next(m for m in hints[entry.name].__metadata__ if isinstance(m, msgspec.Meta) and m.description)
        extra = meta.extra or {}
        default = entry.default
        if entry.default_factory is not msgspec.NODEFAULT:
            default = entry.default_factory()
        yield Key(
            name=entry.name,
            text=meta.description or "",
            reload=bool(extra.get("reload")),
            path=str(extra.get("path", "")),
            default=default,
            required=entry.required,
        )
