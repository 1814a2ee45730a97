"""What a broker's core asks of its driver about the federation description, and what is kept of it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from geomq.errors import GeomqError
from geomq.routing.core.actions import Action
from geomq.routing.core.events import RoutingEvent
from geomq.routing.core.model import BrokerId, Edition
from geomq.routing.core.topology import Federation
from geomq.routing.federation.changes import Change
from geomq.routing.federation.description import Description, federation_of


class Kept(msgspec.Struct, frozen=True):
    """What a broker keeps on disk of the federation: the live descriptions, oldest first, and how far it is.

    `publishing` is the routing that own clients' events go by.
    """

    descriptions: tuple[Description, ...]
    publishing: Edition
    phase: int


class ChangeAsked(RoutingEvent, frozen=True):
    """Somebody in charge wants the federation changed; ConfigError if it cannot be."""

    change: Change


class DescriptionLearned(RoutingEvent, frozen=True):
    """A description came from elsewhere than a link: from the seed."""

    description: Description


class KeepEditions(Action, frozen=True):
    """Keep this on disk, hold links to the brokers of all live descriptions and to no others."""

    kept: Kept


def routing_key(description: Description, me: BrokerId) -> Edition:
    """Whose routing a broker runs under a description; one that is no longer part of it begins anew, alone."""
    return description.routing if me in description.names else description.edition


class Start(NamedTuple):
    """The description that a broker starts with, and what its first routing is made of."""

    description: Description
    edition: Edition
    federation: Federation
    strategy: str
    options: Mapping[str, Any]


def start_of(me: BrokerId, description: Description, federation: Federation | None = None) -> Start:
    """Where a broker starts; `federation` is what the description describes, if it is made already."""
    if federation is None:
        return Start(description, routing_key(description, me), *part_of(description, me))
    if me not in federation.position:
        raise GeomqError(f"broker {me} is not in its own federation")
    return Start(description, description.routing, federation, description.strategy, description.options)


def part_of(description: Description, me: BrokerId) -> tuple[Federation, str, dict[str, Any]]:
    if me in description.names:
        return federation_of(description), description.strategy, description.options
    return Federation.alone(me), "single", {}
