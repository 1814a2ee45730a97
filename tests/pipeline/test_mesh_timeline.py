"""The timeline of a mesh: what it says of brokers, and when there is none. That it is right is `test_parity_mesh`."""

import numpy as np

from geomq.pipeline.mesh_timeline import mesh_options, mesh_timeline, obstacle, timeline_for
from geomq.workload.evaluation.mesh_floods import state_at
from geomq.workload.generation.disgb import preset
from geomq.workload.model import first_subscribers
from geomq.workload.world import World

WORLD = World.published()
SPEC = preset("paper", clients=2_000, topics=20, seconds=120)


def test_a_mesh_comes_to_rest_once_every_broker_has_a_subscriber() -> None:
    timeline = mesh_timeline(WORLD, SPEC, 1)
    last_ms = int(first_subscribers(WORLD, SPEC, 1).t_ms.max())
    assert timeline.changed[-1] < last_ms + 20_000
    assert len(timeline.scene) == len(timeline.changed) + 1
    assert timeline.control.sum() > 0
    assert np.array_equal(timeline.slot > 0, timeline.slot.T > 0)


def test_no_broker_has_a_state_before_the_beginning_and_each_has_one_at_the_end() -> None:
    timeline = mesh_timeline(WORLD, SPEC, 1)
    for broker in range(len(WORLD)):
        assert state_at(timeline, broker, -2) == -1
        state = state_at(timeline, broker, SPEC.end_ms)
        assert timeline.start[state, 1] > timeline.start[state, 0]


def test_topics_are_one_application_on_the_geographic_overlay() -> None:
    options = mesh_options(WORLD.federation, ["a/1", "a/2", "b"])
    assert options["groups"] == {"a": "application", "b": "application"}
    assert len({broker for link in options["links"] for broker in link}) == len(WORLD)


def test_what_a_mesh_cannot_serve_is_left_out_and_said_why() -> None:
    topics, long = preset("paper", clients=100, topics=5_000), preset("paper", clients=100, seconds=50_000)
    assert obstacle(WORLD, SPEC) is None
    assert "at most 4,096 first topic levels" in (obstacle(WORLD, topics) or "")
    assert "limited to 1,000,000 brokers x seconds, not 1,250,000" in (obstacle(WORLD, long) or "")
    assert timeline_for(WORLD, long, 1, False) is None
    assert timeline_for(WORLD, SPEC, 1, True) is None
