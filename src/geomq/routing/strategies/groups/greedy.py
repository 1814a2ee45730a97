"""Broadcast groups chosen once, for a whole run, from weights and distances: the rule of the published comparison.

Pure functions of arrays, usable by anyone; the live formation never asks them.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geomq.errors import ConfigError
from geomq.geo import distances_m
from geomq.routing.core.model import BrokerId
from geomq.routing.core.topology import Federation

MS_PER_KM = 0.021048134571484346


def greedy_groups(latency_ms: ArrayLike, weights: ArrayLike, threshold_ms: float) -> NDArray[np.intp]:
    """Per broker the index of its leader.

    By falling weight (equal: lower index first) a broker leads if it is farther than the threshold from every leader
    so far; the others join the nearest leader (equal: lower index).
    """
    latency = np.asarray(latency_ms, dtype=np.float64)
    leaders: list[int] = []
    for broker in np.argsort(-np.asarray(weights, dtype=np.float64), kind="stable").tolist():
        if all(latency[broker, leader] > threshold_ms for leader in leaders):
            leaders.append(broker)
    chosen = np.array(sorted(leaders), dtype=np.intp)
    nearest = chosen[np.argmin(latency[:, chosen], axis=1)] if leaders else chosen
    nearest[chosen] = chosen
    return nearest


def distance_latency_ms(lats: ArrayLike, lons: ArrayLike) -> NDArray[np.float64]:
    """The latency between brokers that their distance suggests, in whole milliseconds."""
    lat, lon = np.asarray(lats, dtype=np.float64), np.asarray(lons, dtype=np.float64)
    km = distances_m(lat[:, None], lon[:, None], lat[None, :], lon[None, :]) / 1000
    return np.ceil(km * MS_PER_KM)


def computed_groups(
    federation: Federation, weights: Mapping[str, float], threshold_ms: float
) -> dict[BrokerId, BrokerId]:
    """The leader of every broker by the greedy rule, latencies taken from the distances."""
    latency = distance_latency_ms(
        [broker.location.lat for broker in federation.brokers],
        [broker.location.lon for broker in federation.brokers],
    )
    leaders = greedy_groups(latency, [weights.get(broker, 0.0) for broker in federation.ids], threshold_ms)
    return {broker: federation.ids[leader] for broker, leader in zip(federation.ids, leaders, strict=True)}


def given_groups(federation: Federation, table: Mapping[str, tuple[str, ...]]) -> dict[BrokerId, BrokerId]:
    """The leader of every broker by a table of leaders and their members; who is not named leads itself.

    A name the federation does not know (yet) is passed over, so that brokers can come and go under one table.
    """
    leader_of = {broker: broker for broker in federation.ids}
    named: set[str] = set()
    for leader, members in table.items():
        for broker in (leader, *(member for member in members if member != leader)):
            if broker in named:
                raise ConfigError(f"strategy options: broker {broker} is in two groups")
            named.add(broker)
            if broker in leader_of and leader in leader_of:
                leader_of[BrokerId(broker)] = BrokerId(leader)
    return leader_of
