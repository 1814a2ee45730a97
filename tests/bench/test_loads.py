"""Small loads against a real GeoMQ: everything sent is accounted for."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bench.acked import make_pairs
from bench.brokers import CROSSING, Broker, GeoMQ, Relay, c_compiler, mosquitto_command
from bench.geo import Course, fenced
from bench.linked import bridged, linked
from bench.loads import MIXED, SHAPES, Flow, Shape, Way
from bench.measure import BenchError, cpu_s
from bench.places import make_world
from bench.swarm import V5, V311, Swarm, connect, publish, read_packet, subscribe


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with GeoMQ(None) as running:
        yield running


@pytest.mark.parametrize("shape", [*SHAPES, MIXED], ids=lambda shape: shape.name)
def test_a_load_delivers_every_round_whole(broker: Broker, shape: Shape) -> None:
    for way in Way:
        flow = Flow(broker.port, shape, 20, way=way)
        before = cpu_s(broker.pid)
        delivered = flow.run(0.02)
        flow.close()
        assert delivered > 0
        assert delivered % flow.deliveries == 0
        assert cpu_s(broker.pid) > before


@pytest.mark.skipif(c_compiler() is None, reason="no C compiler for the bare relay")
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_bare_relay_passes_on_every_byte(shape: Shape) -> None:
    with Relay(None) as relay:
        flow = Flow(relay.port, shape, 20, way=Way.ONE_AT_A_TIME)
        assert flow.run(0.02) > 0
        flow.close()


def test_acknowledged_messages_are_delivered_messages(broker: Broker) -> None:
    for version, kept in ((V311, False), (V5, True)):
        with Swarm(broker.port) as swarm:
            acking = make_pairs(swarm, 2, each=3, version=version, kept=kept)
            assert acking.run(0.05) >= 6
            assert acking.run(0.05) >= 6


def test_events_reach_those_inside_their_fence(broker: Broker) -> None:
    with Swarm(broker.port) as swarm:
        course = Course(swarm, fenced(swarm, make_world(100, 2_000)))
        assert course.run(0.1, 1_000) > 0
        assert course.deliveries >= course.events
        assert swarm.settle() == 0


def test_a_missing_delivery_is_not_taken_for_a_fast_one(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    with Swarm(broker.port) as swarm:
        clients = swarm.join([connect("waits")])
        swarm.ask(clients, [subscribe("bench/nothing")], 0x90)
        swarm.watch(clients)
        monkeypatch.setattr("bench.swarm.TIMEOUT_S", 0.05)
        with pytest.raises(BenchError, match="have not arrived"):
            swarm.take(10)


def test_what_crosses_a_link_is_counted_at_the_other_end() -> None:
    with linked(None, None, "disgb_subscriptions") as (here, there):
        fenced = Shape("fenced", 2, 2, 2, 5, fenced=True)
        for shape, place in ((SHAPES[0], ""), (fenced, "39.96,-83.0")):
            flow = Flow(there.port, shape, 20, published_at=here.port, place=place)
            assert flow.run(0.05) % flow.deliveries == 0
            flow.close()
        with Swarm(here.port) as near, Swarm(there.port) as far:
            acking = make_pairs(far, 2, each=3, version=V311, kept=False, others=near, name="away")
            time.sleep(0.5)
            assert acking.run(0.05) >= 6


@pytest.mark.skipif(mosquitto_command() is None, reason="mosquitto is not installed")
def test_only_what_crosses_goes_over_the_bridge_between_two_mosquittos() -> None:
    crossing = CROSSING.removeprefix("bench/")
    with bridged(None, None) as (here, there):
        flow = Flow(there.port, replace(SHAPES[0], name=crossing), 20, published_at=here.port)
        assert flow.run(0.05) % flow.deliveries == 0
        flow.close()
        with Swarm(here.port) as near, Swarm(there.port) as far:
            acking = make_pairs(far, 2, each=3, version=V311, kept=False, others=near, name=crossing)
            assert acking.run(0.05) >= 6
            (hears,) = far.join([connect("hears")])
            far.ask([hears], [subscribe("bench/#")], 0x90)
            (says,) = near.join([connect("says")])
            says.sendall(publish("bench/near", b"stays") + publish(CROSSING, b"goes"))
            assert read_packet(hears) == publish(CROSSING, b"goes")


def test_the_trace_of_a_load_is_written(tmp_path: Path) -> None:
    with GeoMQ(None, f'[trace]\ndirectory = "{tmp_path}"\n') as broker:
        flow = Flow(broker.port, SHAPES[0], 20)
        flow.run(0.05)
        flow.close()
        assert broker.stop() == 0
    assert [path.name.split(".")[:2] for path in tmp_path.iterdir()] == [["trace", "geomq"]]
