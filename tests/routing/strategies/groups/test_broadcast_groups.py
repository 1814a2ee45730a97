"""The way of an event: home, group, leader, cloud, other groups. And that nobody misses one while groups change."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.routing.strategies.groups.groups_world import CLOUD, GroupWorld, OneBroker, federation_of

from geomq.errors import ConfigError
from geomq.geo import Circle, Location
from geomq.mqtt.codec.topics import topic_matches
from geomq.routing.core.actions import DropEvent, SendToPeer
from geomq.routing.core.events import (
    ClientMoved,
    ClientPublished,
    ClientSubscribed,
    ClientUnsubscribed,
    FederationChanged,
    PeerDown,
)
from geomq.routing.core.messages import ForwardEvent
from geomq.routing.core.model import BrokerId, ClientId, Event, EventId
from geomq.routing.strategies.groups.messages import CloudPublish, CloudPublished, Dismissed, RelayEvent

DOCS = Path(__file__).parents[4] / "docs" / "topics" / "strategies" / "broadcast-groups.md"
FIXED: dict[str, Any] = {"formation": "fixed", "groups": {"l": ["m", "n"], "k": ["j"]}}


def two_groups(**more: Any) -> GroupWorld:
    """Fixed groups {l: m, n} and {k: j}, links up and quiet."""
    world = GroupWorld(dict.fromkeys("jklmn", 0.0), {}, far_ms=3.0, **FIXED, **more)
    world.run(200)
    return world


def event_of(origin: str, payload: bytes = b"", topic: str = "t", number: int = 1) -> Event:
    return Event(EventId(BrokerId(origin), 0, number), topic, ClientId("x"), None, None, payload)


def test_an_event_takes_the_way_of_the_paper() -> None:
    world = two_groups(record=True)
    world.subscribe("j", "sub", "t")
    world.run(200)
    world.lines.clear()
    world.publish("m", "t")
    world.run(200)
    assert (
        "\n".join(world.lines)
        == """\
     400 m: ClientPublished client=p-m topic=t
           -> to l: RelayEvent event=m:0:1(p-m t) term=1
           -> to n: ForwardEvent event=m:0:1(p-m t) hops=1
     403 l: from m: RelayEvent event=m:0:1(p-m t) term=1
           -> to cloud: CloudPublish event=m:0:1(p-m t)
     403 n: from m: ForwardEvent event=m:0:1(p-m t) hops=1
     423 cloud: from l: CloudPublish event=m:0:1(p-m t)
           -> to k: CloudPublished event=m:0:1(p-m t)
     443 k: from cloud: CloudPublished event=m:0:1(p-m t)
           -> to j: ForwardEvent event=m:0:1(p-m t) hops=1
     446 j: from k: ForwardEvent event=m:0:1(p-m t) hops=1
           -> deliver m:0:1 to sub"""
    )


def test_the_documented_transcript_is_what_happens() -> None:
    world = GroupWorld({"ams": 3.0, "bru": 2.0, "par": 1.0}, {("ams", "bru"): 3.0}, record=True, seed=1)
    world.subscribe("bru", "bea", "news/#")
    world.subscribe("par", "paul", "news/#")
    world.run(1_000)
    world.publish("ams", "news/1")
    world.run(400)
    shown = DOCS.read_text().split("```text\n")[1].split("```")[0]
    formed = [line for line in world.lines if "PeerUp" not in line]
    assert shown == "\n".join(formed) + "\n"


def test_nothing_goes_from_the_cloud_to_groups_that_did_not_ask() -> None:
    world = two_groups()
    world.subscribe("j", "sub", "u")
    world.run(200)
    world.publish("m", "t")
    world.run(200)
    assert world.sent["CloudPublish"] == 1
    assert world.sent["CloudPublished"] == 0


def test_the_group_subscribes_once_and_unsubscribes_with_its_last_client() -> None:
    world = two_groups()
    for broker in ("l", "m", "n"):
        world.subscribe(broker, "one", "t/#")
        world.subscribe(broker, "two", "t/#")
    world.run(200)
    assert world.sent["CloudSubscribe"] == 1
    assert world.sent["PutInterest"] == 2
    for client in ("one", "two"):
        for broker in ("l", "m", "n"):
            assert world.cloud.subscriptions(BrokerId("l")) == ("t/#",)
            world.act(broker, ClientUnsubscribed(ClientId(client), "t/#"))
            world.run(200)
    assert world.cloud.subscriptions(BrokerId("l")) == ()
    assert world.sent["CloudUnsubscribe"] == 1


def test_qos_retain_properties_and_fence_travel_untouched_and_fences_are_checked_at_home() -> None:
    world = two_groups()
    for client, lat in (("near", 50.0), ("far", 0.0)):
        world.act("j", ClientMoved(ClientId(client), Location(lat, 8.0)))
        world.subscribe("j", client, "t")
    world.run(200)
    fence = Circle(Location(50.0, 8.0), 1000.0)
    world.publish("m", "t", b"payload", fence=fence, qos=2, retain=True, properties=b"p")
    world.run(200)
    assert world.receivers(world.last_id("m")) == {"j/near": 1}
    (event,) = world.events
    assert (event.payload, event.fence, event.qos, event.retain, event.properties) == (b"payload", fence, 2, True, b"p")


def test_equal_payloads_are_never_echoes() -> None:
    world = two_groups()
    world.subscribe("j", "sub", "t")
    world.run(200)
    for publisher in ("m", "n", "m", "j", "l"):
        world.publish(publisher, "t", b"same")
    world.run(200)
    assert len(world.delivered) == 5
    assert all(list(had.values()) == [1] for had in world.delivered.values())


def test_a_cloud_that_echoes_is_recognised_by_the_id() -> None:
    a = OneBroker("a", "b", formation="fixed", groups={"a": ["b"]})
    a.take(0, ClientSubscribed(ClientId("sub"), "t"))
    published = a.take(1, ClientPublished(ClientId("x"), "t", payload=b"same"))
    (own,) = [x.message.event for x in published if isinstance(x, SendToPeer) and isinstance(x.message, CloudPublish)]
    of_member = event_of("b", b"same")
    a.hear(2, "b", RelayEvent(of_member, 0, 0))
    for echo in (own, of_member):
        assert a.hear(3, "cloud", CloudPublished(echo)) == [DropEvent(echo.id, "echo")]
    other = a.hear(4, "cloud", CloudPublished(event_of("c", b"same")))
    assert SendToPeer(BrokerId("b"), ForwardEvent(event_of("c", b"same"))) in other
    assert len(other) == 2


def test_clients_of_the_cloud_broker_itself_take_part() -> None:
    world = two_groups()
    world.subscribe("cloud", "authority", "monitoring/#")
    world.subscribe("m", "sub", "alarm")
    world.run(200)
    world.publish("j", "monitoring/1")
    world.act("cloud", ClientPublished(ClientId("authority"), "alarm"))
    world.run(200)
    assert world.receivers(world.last_id("j")) == {"cloud/authority": 1}
    assert world.receivers(world.last_id("cloud")) == {"m/sub": 1}


def test_a_broker_may_speak_only_for_its_own_clients() -> None:
    a = OneBroker("a", "b c", formation="fixed", groups={"a": ["b", "c"]})
    forged = event_of("c")
    assert a.hear(1, "b", RelayEvent(forged, 0, 0)) == [DropEvent(forged.id, "not the sender's own event")]
    assert a.hear(1, "stranger", ForwardEvent(forged)) == [DropEvent(forged.id, "no routing for edition as configured")]


def test_the_topic_of_the_leaders_is_closed_to_clients() -> None:
    a = OneBroker("a", "b")
    dropped = a.take(1, ClientPublished(ClientId("x"), "DG/leaders"))
    assert dropped == [DropEvent(EventId(BrokerId("a"), 0, 1), "topic reserved for leaders")]
    assert a.hear(2, "cloud", CloudPublished(event_of("b", topic="DG/leaders"))) == []


def test_one_that_believes_us_its_leader_wrongly_is_relayed_and_told_so() -> None:
    a = OneBroker("a", "b c")
    event = event_of("b")
    assert a.hear(1, "b", RelayEvent(event, 3, 9)) == [
        SendToPeer(CLOUD, CloudPublish(event)),
        SendToPeer(BrokerId("b"), Dismissed(3)),
    ]


def test_inside_the_group_events_flow_while_the_cloud_is_away_and_everything_returns_with_it() -> None:
    world = two_groups()
    world.subscribe("n", "sub", "t")
    world.subscribe("j", "sub", "t")
    world.run(200)
    world.crash("cloud")
    world.subscribe("j", "late", "t")
    world.publish("m", "t")
    world.run(200)
    assert world.receivers(world.last_id("m")) == {"n/sub": 1}
    world.restart("cloud")
    world.run(200)
    world.publish("m", "t")
    world.run(200)
    assert world.receivers(world.last_id("m")) == {"j/late": 1, "j/sub": 1, "n/sub": 1}


@pytest.mark.parametrize(("qos", "receivers"), [(0, {}), (1, {"j/sub": 1})])
def test_what_a_dying_leader_took_with_it_is_said_again_to_the_cloud(qos: int, receivers: dict[str, int]) -> None:
    """But for events of QoS 0, which might come twice."""
    world = two_groups()
    world.subscribe("j", "sub", "t")
    world.run(200)
    world.publish("m", "t", qos=qos)
    world.run(2)
    world.crash("l")
    world.run(200)
    assert world.receivers(world.last_id("m")) == receivers


def test_fixed_groups_fall_back_to_the_cloud_without_their_leader_and_return_to_it() -> None:
    world = two_groups()
    for broker in ("m", "n", "j"):
        world.subscribe(broker, "sub", "t")
    world.crash("l")
    world.run(200)
    assert world.groups() == {"m": [], "n": [], "k": ["j"]}
    world.publish("m", "t")
    world.run(200)
    assert world.receivers(world.last_id("m")) == {"j/sub": 1, "m/sub": 1, "n/sub": 1}
    world.restart("l")
    world.run(5_000)
    assert world.groups() == {"k": ["j"], "l": ["m", "n"]}
    assert world.cloud.subscriptions(BrokerId("m")) == ()


def test_fixed_groups_follow_a_changed_federation() -> None:
    a = OneBroker("a", "b c", formation="fixed", groups={"b": ["a", "c"]})
    assert a.strategy.seat.leader == "b"
    a.take(1, FederationChanged(federation_of(["a", "c"])))
    assert a.strategy.leading
    assert a.node.next_deadline() is None
    a.take(2, FederationChanged(federation_of(["a", "b", "c"])))
    assert a.transcript().endswith("-> to b: Join term=1")


def test_fixed_groups_have_no_timers_once_seated() -> None:
    world = two_groups()
    assert all(node.next_deadline() is None for node in world.nodes.values())


def test_a_fixed_seat_refused_is_asked_for_again() -> None:
    a = OneBroker("a", "b", formation="fixed", groups={"b": ["a"]})
    a.hear(1, "b", Dismissed(0))
    a.wake(501)
    a.hear(502, "b", Dismissed(1))
    a.transcript()
    a.wake(1002)
    assert a.transcript().endswith("-> to b: Join term=2")
    a.take(1003, PeerDown(BrokerId("b")))
    a.wake(1503)
    assert a.node.next_deadline() is None


def test_a_threshold_of_zero_is_cloud_relay_and_a_very_large_one_global_flooding() -> None:
    near = {("a", "b"): 1.0, ("b", "c"): 1.0, ("a", "c"): 1.0}
    relay = GroupWorld(dict.fromkeys("abc", 1.0), near, join_ms=0.0)
    flood = GroupWorld(dict.fromkeys("abc", 1.0), near, join_ms=1e9)
    for world in (relay, flood):
        world.run(10_000)
    assert relay.groups() == {"a": [], "b": [], "c": []}
    assert flood.groups() == {"a": ["b", "c"]}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"cloud": "a"}, "cloud a is a broker of the federation"),
        ({"join_ms": 5, "leave_ms": 4}, "leave_ms 4 is below join_ms 5"),
        ({"formation": "fixed", "groups": {"a": ["b"], "b": []}}, "broker b is in two groups"),
        ({"join_ms": -1}, "join_ms"),
        ({"request_probability": 0}, "request_probability"),
        ({"formation": "magic"}, "formation"),
        ({"no_such": 1}, "no_such"),
    ],
)
def test_impossible_options_are_refused_in_one_line(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        OneBroker("a", "b", **options)


def expected(subscriptions: dict[tuple[str, str], set[str]], topic: str) -> dict[str, int]:
    return {
        f"{home}/{client}": 1
        for (home, client), filters in sorted(subscriptions.items())
        if any(topic_matches(each, topic) for each in filters)
    }


def random_world(rng: Random) -> tuple[GroupWorld, dict[tuple[str, str], set[str]]]:
    names = [f"b{number}" for number in range(rng.randint(2, 6))]
    world = GroupWorld(
        {name: float(rng.randint(0, 3)) for name in names},
        {(a, b): rng.choice([1.0, 3.0, 4.9, 5.0, 9.0, 30.0]) for a in names for b in names if a < b},
        cloud_ms={name: rng.choice([1.0, 20.0, 100.0, 300.0]) for name in names},
        seed=rng.randint(0, 9),
        probes=3,
    )
    subscriptions: dict[tuple[str, str], set[str]] = {}
    for name in names:
        for client in ("x", "y")[: rng.randint(0, 2)]:
            subscriptions[name, client] = {rng.choice(["t/#", "t/1", "+/2", "#"]) for _ in range(2)}
            for topic_filter in sorted(subscriptions[name, client]):
                world.subscribe(name, client, topic_filter)
    return world, subscriptions


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_no_event_is_lost_or_doubled_while_groups_form_and_change(seed: int) -> None:
    rng = Random(seed)
    world, subscriptions = random_world(rng)
    world.run(400)  # the cloud has every subscription by now
    due: dict[EventId, dict[str, int]] = {}
    pairs = sorted(sorted(pair) for pair in world.latency_ms if CLOUD not in pair)
    for _ in range(500):
        world.run(rng.choice([1.0, 3.0, 10.0, 30.0]))
        home, topic = rng.choice(world.federation.ids), rng.choice(["t/1", "t/2", "u"])
        world.publish(home, topic)
        due[world.last_id(home)] = expected(subscriptions, topic)
        if rng.random() < 0.03:
            world.latency_ms[frozenset(rng.choice(pairs))] = rng.choice([1.0, 4.0, 9.0, 30.0])
    world.run(3_000)
    for event_id, receivers in due.items():
        assert world.receivers(event_id) == receivers, event_id


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_after_any_faults_a_quiet_network_delivers_to_exactly_the_matching_clients_once(seed: int) -> None:
    rng = Random(seed)
    world, subscriptions = random_world(rng)
    names, cut, dead = list(world.federation.ids), set[tuple[str, str]](), set[str]()
    for _ in range(rng.randint(0, 30)):
        world.run(rng.choice([5.0, 50.0, 300.0, 1_500.0]))
        one, other = sorted(rng.sample([*names, CLOUD], 2))
        broker = rng.choice(names)
        match rng.choice(["cut", "heal", "crash", "subscribe", "unsubscribe"]):
            case "cut" if not dead & {one, other} and (one, other) not in cut:
                cut.add((one, other))
                world.cut(one, other)
            case "heal" if (one, other) in cut:
                cut.discard((one, other))
                world.heal(one, other)
            case "crash" if broker not in dead and not any(broker in pair for pair in cut):
                dead.add(broker)
                world.crash(broker)
                subscriptions = {key: filters for key, filters in subscriptions.items() if key[0] != broker}
            case "subscribe" if broker not in dead:
                world.subscribe(broker, "z", "t/2")
                subscriptions[broker, "z"] = {"t/2"}
            case "unsubscribe" if broker not in dead and (broker, "z") in subscriptions:
                del subscriptions[broker, "z"]
                world.act(broker, ClientUnsubscribed(ClientId("z"), "t/2"))
    for name in sorted(dead):
        world.restart(name)
    for pair in sorted(cut):
        world.heal(*pair)
    world.run(30_000)
    assert_quiet(world, subscriptions)
    for home in names:
        for topic in ("t/1", "t/2", "u"):
            world.publish(home, topic)
            world.run(1_500)
            assert world.receivers(world.last_id(home)) == expected(subscriptions, topic)


def assert_quiet(world: GroupWorld, subscriptions: dict[tuple[str, str], set[str]]) -> None:
    """The groups agree with each other, and the cloud holds for each leader exactly what its group wants."""
    groups = world.groups()
    for name in world.federation.ids:
        wanted = {"DG/leaders"} if name in groups else set()
        for (home, _), filters in subscriptions.items():
            if world.strategy(home).seat.leader == name:
                wanted |= filters
        assert set(world.cloud.subscriptions(name)) == wanted, name
