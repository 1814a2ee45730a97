"""The limit without a network."""

import numpy as np
import pytest

from geomq.reproduction.rendezvous.plane import kept_in_plane, overhead_in_plane


def test_one_random_point_doubles_the_way() -> None:
    assert overhead_in_plane(16)[0] == pytest.approx(2, abs=0.02)


def test_more_points_shorten_the_way_less_and_less() -> None:
    gains = -np.diff(overhead_in_plane(16))
    assert (gains > 0).all()
    assert (np.diff(gains) < 0).all()
    assert overhead_in_plane(16)[-1] > 1


def test_a_longer_detour_keeps_more_points_up_to_all_of_them() -> None:
    shares = kept_in_plane((0.0, 0.1, 0.5, 1.0, 1e9))
    assert shares[0] == pytest.approx(0, abs=1e-3)
    assert shares[-1] == 1
    assert (np.diff(shares) > 0).all()
