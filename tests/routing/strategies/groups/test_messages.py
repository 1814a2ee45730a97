"""In which column each message of broadcast groups is counted."""

import inspect

from geomq.routing.core.messages import KINDS, Message
from geomq.routing.strategies.groups import messages as groups_messages

EXPECTED = {
    "event": {"CloudPublish", "CloudPublished", "RelayEvent"},
    "subscription": {"CloudSubscribe", "CloudUnsubscribe", "PutInterest", "DropInterest"},
}


def test_events_and_subscriptions_are_counted_as_such_and_all_else_is_control() -> None:
    named = inspect.getmembers(groups_messages, inspect.isclass)
    found = [each for _, each in named if each.__module__ == groups_messages.__name__]
    classes = [each for each in found if issubclass(each, Message)]
    assert classes == found
    for kind, names in EXPECTED.items():
        assert {each.__name__ for each in classes if each.kind == kind} == names
    assert {each.kind for each in classes} == {"event", "subscription", "control"} <= set(KINDS)
