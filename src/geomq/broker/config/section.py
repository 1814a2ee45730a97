"""What all sections of the config share: the base class, the types of keys, and how a key describes itself."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

FOREVER_S = 4_294_967_295
"""What MQTT calls a session that never expires."""

Port = Annotated[int, Meta(ge=0, le=65_535)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
NamePattern = Annotated[str, Meta(pattern=r"^[A-Za-z0-9*?][A-Za-z0-9._*?-]{0,63}$")]
Text = Annotated[str, Meta(max_length=65_536)]
Path = Annotated[str, Meta(min_length=1, max_length=4096)]
Address = Annotated[str, Meta(pattern=r"^.{1,255}:\d{1,5}$")]
Rate = Annotated[float, Meta(ge=0, le=1e9)]
Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Positive = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Size = Annotated[int, Meta(ge=1_024, le=1 << 40)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]


def about(text: str, *, reload: bool = False, path: Literal["", "read", "write"] = "") -> Meta:
    """The description of a key; `reload` marks one that SIGHUP may change, `path` one that names a file."""
    return Meta(description=text, extra={"reload": reload, "path": path})


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all sections share: immutable, keyword-only, no unknown keys."""
