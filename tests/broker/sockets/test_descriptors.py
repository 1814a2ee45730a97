"""How many descriptors there are, and for whom."""

import resource

from geomq.broker.sockets.descriptors import Descriptors, descriptors, raise_limit


def test_what_is_reserved_is_not_given_to_clients() -> None:
    assert Descriptors(1_024).connections(100_000) == 640
    assert Descriptors(1_024).connections(100) == 100
    assert Descriptors(1 << 20).connections(100_000) == 100_000
    assert Descriptors(64).connections(100_000) == 32
    assert Descriptors(1).connections(10) == 1
    assert Descriptors(None).connections(10) == 10


def test_clients_stop_before_others_and_others_before_the_store() -> None:
    for limit in (64, 256, 1_024, 1 << 20):
        found = Descriptors(limit)
        assert found.clients_end is not None
        assert found.others_end is not None
        assert found.connections(1 << 30) <= found.clients_end <= found.others_end
        assert found.others_end + found.store_files // 2 <= limit
    assert Descriptors(None).clients_end is None
    assert Descriptors(None).others_end is None


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard // 2, hard))
        assert descriptors().limit == hard // 2
        raise_limit()
        assert descriptors().limit == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
