"""How many descriptors there are, and for whom."""

import resource
from itertools import pairwise

from geomq.broker.sockets.descriptors import Descriptors, descriptors, raise_limit


def test_what_is_reserved_is_not_given_to_clients() -> None:
    assert Descriptors(1_024).connections(100_000) == 640
    assert Descriptors(1_024).connections(100) == 100
    assert Descriptors(1 << 20).connections(100_000) == 100_000
    assert Descriptors(64).connections(100_000) == 32
    assert Descriptors(1).connections(10) == 1
    assert Descriptors(None).connections(10) == 10


def test_links_are_not_given_to_clients_either() -> None:
    assert Descriptors(1_024).connections(100_000, peers=100) == 440


def test_clients_stop_first_then_links_then_http_and_the_store_has_the_rest() -> None:
    for limit in (64, 256, 512, 1_024, 1 << 20):
        found = Descriptors(limit)
        ends = [found.clients_end, found.peers_end, found.http_end]
        for before, after in pairwise([found.connections(1 << 30), *ends, limit - found.store_files]):
            assert before is not None
            assert after is not None
            assert before < after
    assert Descriptors(None).clients_end is None
    assert Descriptors(None).http_end is None


def test_connections_that_are_ending_leave_room_for_new_clients() -> None:
    for limit in (64, 1_024, 1 << 20):
        found = Descriptors(limit)
        endings = found.endings(found.connections(100_000, peers=3), peers=3)
        assert found.clients_end is not None
        assert endings is not None
        assert 0 < endings <= found.clients_end - found.connections(100_000, peers=3)
    assert Descriptors(None).endings(10) is None


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard // 2, hard))
        assert descriptors().limit == hard // 2
        raise_limit()
        assert descriptors().limit == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
