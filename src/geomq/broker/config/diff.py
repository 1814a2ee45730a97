"""What differs between two configs, and whether a running broker may take it over. Changes nothing itself."""

from typing import Any, NamedTuple

import msgspec

from geomq.broker.config.keys import sections
from geomq.broker.config.settings import Config


class Change(NamedTuple):
    """One key with another value; an array of tables counts as one key of its own name."""

    section: str
    key: str
    old: Any
    new: Any
    reloadable: bool

    def __str__(self) -> str:
        return f"[{self.section}] {self.key}" if self.key else f"[[{self.section}]]"


def config_changes(old: Config, new: Config) -> list[Change]:
    """Every difference, in the order of the file."""
    changes = []
    for name, section in sections().items():
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        if section.many:
            changes.append(Change(name, "", before, after, False))
            continue
        for key in section.keys:
            one, other = getattr(before, key.name), getattr(after, key.name)
            if one != other:
                changes.append(Change(name, key.name, one, other, key.reload))
    return changes


def reloaded(old: Config, new: Config) -> Config:
    """`old` with only those values of `new` that a running broker may take over."""
    taken: dict[str, Any] = {}
    for change in config_changes(old, new):
        if change.reloadable:
            section = taken.get(change.section, getattr(old, change.section))
            taken[change.section] = msgspec.structs.replace(section, **{change.key: change.new})
    return msgspec.structs.replace(old, **taken) if taken else old
