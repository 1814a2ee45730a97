"""Token buckets and address counts against plain models."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from geomq.broker.security.limits import AddressCounts, TokenBucket, address_block, make_bucket


def test_a_bucket_lets_a_burst_through_and_then_the_rate() -> None:
    bucket = TokenBucket(10.0, 3, now=0.0)
    assert [bucket.take(now=0.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.wait_s(now=0.0) == 0.1
    assert bucket.take(now=0.11)
    assert not bucket.take(now=0.12)
    assert [bucket.take(now=1000.0) for _ in range(4)] == [True, True, True, False]


@given(
    st.floats(0.1, 100),
    st.integers(1, 20),
    st.lists(st.floats(0, 1), min_size=1, max_size=100),
)
def test_no_window_passes_more_than_burst_plus_rate(rate: float, burst: int, gaps: list[float]) -> None:
    bucket = TokenBucket(rate, burst, now=0.0)
    now, passed = 0.0, 0
    for gap in gaps:
        now += gap
        if bucket.take(now=now):
            passed += 1
        else:
            wait = bucket.wait_s(now=now)
            assert 0 < wait <= 1.0 / rate + 1e-9
        assert passed <= burst + rate * now + 1e-6


def test_time_that_runs_backwards_gives_nothing() -> None:
    bucket = TokenBucket(1.0, 1, now=10.0)
    assert bucket.take(now=10.0)
    assert not bucket.take(now=5.0)
    assert not bucket.take(now=10.5)


def test_a_rate_of_zero_is_no_limit() -> None:
    assert make_bucket(0.0, 5, now=0.0) is None
    assert make_bucket(1.0, 5, now=0.0) is not None


@given(st.integers(0, 3), st.lists(st.tuples(st.booleans(), st.sampled_from("abc")), max_size=60))
def test_counts_follow_a_plain_counter(maximum: int, steps: list[tuple[bool, str]]) -> None:
    counts, model = AddressCounts(maximum), Counter[str]()
    for arrive, address in steps:
        if arrive:
            admitted = counts.admit(address)
            assert admitted == (not maximum or model[address] < maximum)
            model[address] += admitted
        elif model[address]:
            counts.release(address)
            model[address] -= 1
        assert counts.count(address) == model[address]
    assert len(counts) == sum(1 for count in model.values() if count)


def test_an_ipv6_network_counts_as_one_address() -> None:
    assert address_block("2001:db8:1:2::1") == address_block("2001:db8:1:2:ffff::9")
    assert address_block("2001:db8:1:2::1") != address_block("2001:db8:1:3::1")
    assert address_block("::ffff:10.0.0.1") == address_block("10.0.0.1") == "10.0.0.1"
    assert address_block("fe80::1%eth0") == address_block("fe80::2%eth1")
    assert address_block("not:an:address") == "not:an:address"
