"""Sessions and rates: what is remembered, for how long, of how many."""

from geomq.dashboard.access import ADDRESSES_MAX, SESSION_S, SESSIONS_MAX, Access, Buckets


def test_a_session_ends_after_a_while() -> None:
    access = Access(token="secret", admin=False)
    session = access.log_in("secret", now=0.0)
    assert access.knows(session, now=SESSION_S - 1)
    assert not access.knows(session, now=SESSION_S + 1)


def test_only_the_token_opens_a_session() -> None:
    access = Access(token="secret", admin=False)
    assert access.log_in("Secret", now=0.0) is None
    assert access.log_in("", now=0.0) is None
    assert access.log_in("sécret", now=0.0) is None
    assert not access.knows("secret", now=0.0)
    assert not access.knows(None, now=0.0)


def test_the_oldest_session_makes_room() -> None:
    access = Access(token="secret", admin=False)
    sessions = [access.log_in("secret", now=0.0) for _ in range(SESSIONS_MAX + 1)]
    assert not access.knows(sessions[0], now=1.0)
    assert all(access.knows(session, now=1.0) for session in sessions[1:])


def test_rates_are_counted_for_each_address_and_the_table_is_bounded() -> None:
    buckets = Buckets(1.0, 2)
    assert [buckets.take("192.0.2.1", now=0.0) for _ in range(3)] == [True, True, False]
    assert buckets.take("192.0.2.2", now=0.0)
    assert buckets.take("192.0.2.1", now=1.0)
    for number in range(ADDRESSES_MAX):
        buckets.take(f"198.51.{number // 256}.{number % 256}", now=1.0)
    assert [buckets.take("192.0.2.1", now=1.0) for _ in range(3)] == [True, True, False], "it was forgotten meanwhile"
