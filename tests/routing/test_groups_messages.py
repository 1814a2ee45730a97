"""In which column each message of broadcast groups is counted."""

import inspect

from geomq.routing import groups_messages
from geomq.routing.messages import KINDS, Message

EXPECTED = {
    "event": {"CloudPublish", "CloudPublished", "RelayEvent"},
    "subscription": {"CloudSubscribe", "CloudUnsubscribe", "PutInterest", "DropInterest"},
}


def test_events_and_subscriptions_are_counted_as_such_and_all_else_is_control() -> None:
    classes: list[type[Message]] = [
        thing
        for _, thing in inspect.getmembers(groups_messages, inspect.isclass)
        if thing.__module__ == groups_messages.__name__
    ]
    assert all(issubclass(each, Message) for each in classes)
    for kind, names in EXPECTED.items():
        assert {each.__name__ for each in classes if each.kind == kind} == names
    assert {each.kind for each in classes} == {"event", "subscription", "control"} <= set(KINDS)
