"""How far apart brokers are while groups form: latency by distance, access and noise, and the nearest leader.

Owns the compiled loops over pairs of brokers. No pair is ever stored, so memory grows with the brokers, not with
their square. Which leader asks, joins or leads is `formation`.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geomq.errors import UsageError
from geomq.geo.sphere import EARTH_RADIUS_M, unit_vectors
from geomq.routing.strategies.groups.greedy import MS_PER_KM
from geomq.workload.compiled import compiled

Indexes = NDArray[np.int64]
Numbers = NDArray[np.float64]

NOISE_MAX = 0.25
PROBES_MAX = 1000
_MS_PER_RADIAN = EARTH_RADIUS_M / 1000.0 * MS_PER_KM
# The noise is a sum of four uniform numbers, so it never strays farther than this many standard deviations.
_STRAY_MAX = math.sqrt(12.0)


class Space(NamedTuple):
    """Where brokers stand on the unit sphere, what their access adds, and how noisy probes are.

    A probe reads the latency times 1 + `noise` x a standard normal number; a broker goes by the mean of its last
    `probes` probes, one per tick.
    """

    x: Numbers
    y: Numbers
    z: Numbers
    access_ms: Numbers
    noise: float
    probes: int
    seed: int


def space_of(lats: ArrayLike, lons: ArrayLike, *, noise: float = 0.0, probes: int = 1, seed: int = 0) -> Space:
    """The space of brokers at these places, all with instant access."""
    if not 0 <= noise <= NOISE_MAX:
        raise UsageError(f"the noise must be between 0 and {NOISE_MAX}, not {noise:g}")
    if not 1 <= probes <= PROBES_MAX:
        raise UsageError(f"the mean must be over 1 to {PROBES_MAX} probes, not {probes}")
    x, y, z = (np.ascontiguousarray(axis, np.float64) for axis in unit_vectors(lats, lons))
    return Space(x, y, z, np.zeros(len(x)), float(noise), int(probes), int(seed))


@compiled
def latency_ms(space: Space, a: int, b: int) -> float:
    """The true latency between two brokers."""
    dx, dy, dz = space.x[a] - space.x[b], space.y[a] - space.y[b], space.z[a] - space.z[b]
    half = min(1.0, math.sqrt(dx * dx + dy * dy + dz * dz) / 2.0)
    return float(2.0 * math.asin(half) * _MS_PER_RADIAN + space.access_ms[a] + space.access_ms[b])


@compiled
def _standard_noise(seed: int, a: int, b: int, tick: int) -> float:
    """A number of mean 0 and variance 1 that depends on its arguments alone."""
    state = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(tick)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9) + np.uint64(a)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB) + np.uint64(b)
    total = 0.0
    for _ in range(4):
        state += np.uint64(0x9E3779B97F4A7C15)
        word = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        total += float((word ^ (word >> np.uint64(31))) >> np.uint64(11)) / 9007199254740992.0
    return (total - 2.0) * math.sqrt(3.0)


@compiled
def measured_ms(space: Space, a: int, b: int, tick: int) -> float:
    """What `a` takes the latency to `b` to be at a tick."""
    true = latency_ms(space, a, b)
    if space.noise == 0.0:
        return true
    count = min(space.probes, tick + 1)
    total = 0.0
    for back in range(count):
        total += _standard_noise(space.seed, a, b, tick - back)
    return true * (1.0 + space.noise * total / count)


@compiled
def measured_pairs(space: Space, a: Indexes, b: Indexes, tick: int) -> Numbers:
    """`measured_ms` of many pairs."""
    found = np.empty(len(a))
    for i in range(len(a)):
        found[i] = measured_ms(space, a[i], b[i], tick)
    return found


@compiled
def nearest_leaders(space: Space, leaders: Indexes, join_ms: float, tick: int) -> Indexes:
    """Per leader the nearest other leader if it is below the threshold (equal: lower number), else -1."""
    plain = space.noise == 0.0 and not space.access_ms.any()
    x, y, z = space.x[leaders], space.y[leaders], space.z[leaders]
    reach = join_ms / (1.0 - _STRAY_MAX * space.noise)
    limit = 8.0 if reach >= math.pi * _MS_PER_RADIAN else (2.0 * math.sin(reach / 2.0 / _MS_PER_RADIAN)) ** 2 + 1e-9
    found = np.full(len(leaders), -1)
    for i in range(len(leaders)):
        best, at = math.inf, -1
        for j in range(len(leaders)):
            dx, dy, dz = x[i] - x[j], y[i] - y[j], z[i] - z[j]
            value = dx * dx + dy * dy + dz * dz
            if value > limit or i == j:
                continue
            if not plain:
                value = measured_ms(space, leaders[i], leaders[j], tick)
            if value < best:
                best, at = value, j
        if at >= 0 and measured_ms(space, leaders[i], leaders[at], tick) < join_ms:
            found[i] = leaders[at]
    return found
