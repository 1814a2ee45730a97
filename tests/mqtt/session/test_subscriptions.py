"""Several matching subscriptions make one delivery."""

from geomq.mqtt.codec.packets import SubscribeRequest
from geomq.mqtt.session.subscriptions import Subscription, Terms, merge, subscription_of


def test_overlapping_subscriptions_give_the_highest_qos_and_every_identifier() -> None:
    mine = [Subscription("a/#", 0, identifier=7), Subscription("a/+", 2, identifier=9), Subscription("a/b", 1)]
    assert merge(mine, qos=2, retain=False, own=False) == Terms(2, False, (7, 9))
    assert merge(mine, qos=1, retain=True, own=False) == Terms(1, False, (7, 9))


def test_no_local_subscriptions_do_not_see_the_client_s_own_messages() -> None:
    deaf, open_ear = Subscription("a", 2, no_local=True, identifier=1), Subscription("#", 0)
    assert merge([deaf], qos=1, retain=False, own=True) is None
    assert merge([deaf, open_ear], qos=1, retain=False, own=True) == Terms(0, False, ())
    assert merge([deaf], qos=1, retain=False, own=False) == Terms(1, False, (1,))


def test_the_retain_flag_is_kept_only_as_published() -> None:
    assert merge([Subscription("a", retain_as_published=True)], qos=0, retain=True, own=False) == Terms(0, True, ())


def test_a_request_becomes_a_subscription_within_the_server_s_qos() -> None:
    request = SubscribeRequest("a", 2, True, True, 1)
    assert subscription_of(request, (5,), 1) == Subscription("a", 1, True, True, 1, 5)
    assert subscription_of(request, (), 2).identifier == 0


def test_retain_handling_says_when_retained_messages_are_due() -> None:
    for handling, fresh, renewed in ((0, True, True), (1, True, False), (2, False, False)):
        subscription = Subscription("a", retain_handling=handling)
        assert subscription.wants_retained(existed=False) is fresh
        assert subscription.wants_retained(existed=True) is renewed
    assert not Subscription("$share/g/a").wants_retained(existed=False)
