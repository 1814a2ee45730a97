"""What a broker's core and its driver say to each other about the federation description, and what is kept of it."""

from typing import Any

import msgspec

from geomq.routing.actions import Action
from geomq.routing.changes import Change
from geomq.routing.description import Description, federation_of
from geomq.routing.events import RoutingEvent
from geomq.routing.federation import Federation
from geomq.routing.model import BrokerId, Edition


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


def part_of(description: Description, me: BrokerId) -> tuple[Federation, str, dict[str, Any]]:
    if me in description.names:
        return federation_of(description), description.strategy, description.options
    return Federation.alone(me), "single", {}
