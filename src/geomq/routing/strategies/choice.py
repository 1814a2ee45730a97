"""Strategies and their options as a person types them: `dht,hubs:Hubs` and `name=value`.

Owns how such text becomes names and plain values of the types that a strategy's options declare. An option goes to
each of the named strategies that has one of its name; one that none of them has is refused with the names they know.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from geomq.errors import ConfigError
from geomq.routing.strategies.registry import strategy_class


def names_of(text: str) -> list[str]:
    """The strategies of a list such as `dht,hubs:Hubs`, each once."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    if "" in names:
        raise ConfigError(f"an empty name in the list of strategies {text!r}")
    return names


def options_for(names: Iterable[str], given: Iterable[str]) -> dict[str, dict[str, Any]]:
    """For each of these strategies those of the options `name=value` that it has."""
    chosen: dict[str, dict[str, Any]] = {name: {} for name in names}
    for text in given:
        option, equals, value = text.partition("=")
        if not equals or not option:
            raise ConfigError(f"an option must be name=value, not {text!r}")
        for name, values in _given(chosen, option, value).items():
            chosen[name] |= values
    for name, values in chosen.items():
        strategy_class(name).parse_options(values)
    return chosen


def typed(options: Mapping[str, Any]) -> list[str]:
    """Options as a person would type them."""
    return [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in options.items()]


def _given(names: Iterable[str], option: str, text: str) -> dict[str, dict[str, Any]]:
    """The option for those of the strategies that have it; one that none has is refused."""
    known = {name: _types(name) for name in names}
    having = {name: types[option] for name, types in known.items() if option in types}
    if not having:
        lists = [f"{name} has {', '.join(types)}" for name, types in known.items() if types]
        raise ConfigError(f"none of these strategies has an option {option!r}: {'; '.join(lists) or 'none has any'}")
    return {name: {option: _value(name, option, text, wanted)} for name, wanted in having.items()}


def _types(name: str) -> dict[str, Any]:
    return {field.encode_name: field.type for field in msgspec.structs.fields(strategy_class(name).Options)}


def _value(name: str, option: str, text: str, wanted: Any) -> Any:
    """A text is taken as it stands where that is a value of the type, and as JSON otherwise."""
    try:
        return msgspec.to_builtins(msgspec.convert(text, wanted, strict=False))
    except msgspec.ValidationError as error:
        plainly = error
    try:
        return msgspec.to_builtins(msgspec.json.decode(text, type=wanted))
    except msgspec.ValidationError as error:
        raise ConfigError(f"option {option} of {name}: {error}, not {text!r}") from None
    except msgspec.DecodeError:
        raise ConfigError(f"option {option} of {name}: {plainly}, not {text!r}") from None
