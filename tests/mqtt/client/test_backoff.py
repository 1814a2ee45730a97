"""Pauses double up to their maximum, with jitter, and begin anew when asked to."""

from geomq.mqtt.client.backoff import Backoff


def test_pauses_double_up_to_the_maximum() -> None:
    backoff = Backoff(0.1, 1.0)
    assert [backoff.pause_s(0.0) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.reset()
    assert backoff.pause_s(0.0) == 0.1


def test_dice_take_up_to_half_away() -> None:
    assert Backoff(1.0).pause_s(1.0) == 0.5
    assert Backoff(1.0).pause_s(0.5) == 0.75
