"""Subscription options and how several that match one message become one delivery."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from geomq.mqtt.codec.packets import SubscribeRequest


class Subscription(msgspec.Struct, frozen=True, gc=False):
    """What a client asked for under one filter; `identifier` 0 means none."""

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    identifier: int = 0

    def wants_retained(self, *, existed: bool) -> bool:
        """Whether retained messages are due when this subscription is made."""
        if self.topic_filter.startswith("$share/"):
            return False
        return self.retain_handling == 0 or (self.retain_handling == 1 and not existed)


class Terms(NamedTuple):
    """How one message goes to one receiver."""

    qos: int
    retain: bool
    identifiers: tuple[int, ...]


def as_of_bridge(request: SubscribeRequest) -> SubscribeRequest:
    """What a broker means that cannot say so: nothing that it published itself, and retained as published."""
    shared = request.topic_filter.startswith("$share/")
    return msgspec.structs.replace(request, no_local=not shared, retain_as_published=True)


def subscription_of(request: SubscribeRequest, identifiers: tuple[int, ...], qos_max: int) -> Subscription:
    return Subscription(
        request.topic_filter,
        min(request.qos, qos_max),
        request.no_local,
        request.retain_as_published,
        request.retain_handling,
        identifiers[0] if identifiers else 0,
    )


def merge(subscriptions: Iterable[Subscription], *, qos: int, retain: bool, own: bool) -> Terms | None:
    """One delivery for all matching subscriptions of a client: the highest QoS, every identifier.

    `own` says the client published the message itself; None means no subscription wants it then.
    """
    granted = -1
    as_published = False
    identifiers: tuple[int, ...] = ()
    for subscription in subscriptions:
        if own and subscription.no_local:
            continue
        granted = max(granted, subscription.qos)
        as_published = as_published or subscription.retain_as_published
        if subscription.identifier:
            identifiers += (subscription.identifier,)
    if granted < 0:
        return None
    return Terms(min(qos, granted), retain and as_published, identifiers)
