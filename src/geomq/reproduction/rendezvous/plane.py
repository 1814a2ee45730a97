"""The plane itself: what rendezvous cost if distance were all there is.

Owns the limit that large dense networks approach: uniform points of the unit square, no cells, no holes, no
hops. Where a measurement deviates from the paper, this tells geometry from implementation.
"""

import functools

import numpy as np
from numpy.typing import NDArray

_TRIPLES = 200_000
_SEED = 1


@functools.cache
def overhead_in_plane(rendezvous: int) -> NDArray[np.float64]:
    """By n: the mean best way through n random points over the mean direct way.

    A step to any of eight cells makes the larger of the two coordinate differences the distance.
    """
    dice = np.random.default_rng(_SEED)
    a, b = dice.random((2, _TRIPLES, 2))
    best, means = np.full(_TRIPLES, np.inf), np.empty(rendezvous)
    for number in range(rendezvous):
        through = dice.random((_TRIPLES, 2))
        best = np.minimum(best, abs(a - through).max(axis=1) + abs(through - b).max(axis=1))
        means[number] = best.mean()
    return means / float(abs(a - b).max(axis=1).mean())


@functools.cache
def kept_in_plane(stretches: tuple[float, ...]) -> NDArray[np.float64]:
    """By k: the probability that the way through one random point is at most 1 + 2k times the direct way."""
    a, b, through = np.random.default_rng(_SEED).random((3, _TRIPLES, 2))
    direct = np.hypot(*(a - b).T)
    detour = np.hypot(*(a - through).T) + np.hypot(*(through - b).T)
    return np.array([np.mean(detour <= (1 + 2 * k) * direct) for k in stretches])
