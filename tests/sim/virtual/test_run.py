"""Whole brokers keep what they promise, the same seed gives the same run, and a failure can be seen again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from geomq.routing.strategies.registry import STRATEGIES
from geomq.sim import soak
from geomq.sim.virtual.run import run
from geomq.sim.virtual.scenario import HABITS, STORM, TROUBLES, Options, Scenario
from geomq.sim.virtual.soak import command_of, play

ROOT = Path(__file__).parents[3]


FAILED_ONCE = (
    57,  # a former home sent an event on by where its client had been
    74,  # connections to a machine without power were never given up by their clients
    75,  # order was wanted of events from before a client subscribed
    118,  # an event of QoS 0 was sent again to a peer that had restarted
    11,  # what came to a new home by itself overtook what a former home still sent
    145,  # an event without a fence overtook an older one by way of a broker that helped with a roaming client
    40,  # a session that came after its client had gone on with another stayed behind
    294,  # a second session was not looked for, and a client never told of a new one lost its subscriptions
    86,  # what waited in a session that was given away counted as had by its client
    156,  # a former home forgot a client of whose new home a peer with a broken link had not heard
    211,  # two sessions united without what the first had had
    143,  # what was held for a client was dropped because the client had gone elsewhere since
    600,  # who was said to have sent all had something on its way yet
    38,  # each restart let a session live longer
    482,  # a client was let in to a session that its broker could not write down
    257,  # events of QoS 0 were said again to the cloud when a leader was lost
    762,  # a leader that was only slow stopped to serve a member before the cloud did
    890,  # the cloud had an event of QoS 2 that its broker then forgot
    999,  # a client waited for ever for the rest of a packet
    504,  # a subscription restored at a start counted as one that peers may not know of
    660,  # a former home did not learn that its client had gone further, nor which event was from before a restart
    915,  # an event that was under way to a rendezvous came there when the former home was no longer registered
    621,  # a connection that broke went on behind a hole: the simulation's own mistake
)
"""Seeds that found something, and what it was."""

FAILED_IN_A_STORM = (
    (44, "disgb_subscriptions"),  # a broker forgot on disk that a client had left when one that was gone was let in
    (54, "grid_quorum"),  # a broker its client came back to said too early that it had sent all
    (61, "georendezvous"),  # a question by way of another broker was lost, and not asked again
    (85, "grid_quorum"),  # as 54, when links are cut
    (4, "mesh"),  # a broker that had started again stopped before it was in its meshes, with events nobody else had
    (28, "mesh"),  # the same, while frames are lost
    (26, "broadcast_groups"),  # the cloud took a new message for one that an earlier start of its broker had left open
    (28, "broadcast_groups"),  # the same after a power failure
    (188, "grid_quorum"),  # a client took a message of one of its two sessions for a repeat of the other's
    (283, "flood_subscriptions"),  # a client got a second session because a clock was wrong
    (86, "broadcast_groups"),  # a client with a session it did not know of was sent again what it had, as new
)

SAME = (13, 38)
"""With the cloud, and without."""


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_what_a_seed_found_once_stays_mended(seed: int) -> None:
    assert play(seed).failure is None


@pytest.mark.parametrize(("seed", "strategy"), FAILED_IN_A_STORM)
def test_what_a_storm_found_once_stays_mended(seed: int, strategy: str | None) -> None:
    assert play(seed, Options(strategy, storm=True)).failure is None


def test_in_a_storm_clients_hop_and_brokers_die() -> None:
    scenario = Scenario(3, Options(storm=True))
    assert scenario.habits == {"hop"}
    assert STORM in scenario.troubles
    assert len(scenario.names) == 3
    assert command_of(3, Options(storm=True)) == ("python -m geomq.sim.soak --whole --seed 3 --transcript --storm")


def test_the_same_seed_gives_the_same_run_whatever_texts_hash_to() -> None:
    here = [run(seed).digest for seed in SAME]
    assert len(set(here)) == len(SAME)
    code = f"from geomq.sim.virtual.run import run; print([run(seed).digest for seed in {SAME}])"
    for hash_seed in ("0", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", code]
        child = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert child.stdout == f"{here}\n"


def test_seeds_draw_every_strategy_trouble_and_habit() -> None:
    scenarios = [Scenario(seed) for seed in range(200)]
    assert {scenario.strategy for scenario in scenarios} == set(STRATEGIES)
    assert {trouble for scenario in scenarios for trouble in scenario.troubles} == set(TROUBLES)
    assert {habit for scenario in scenarios for habit in scenario.habits} == set(HABITS)
    assert {scenario.mode for scenario in scenarios} == {"calm", "heals", "never heals"}
    assert {scenario.refuses for scenario in scenarios} == {True, False}


def test_what_a_run_is_told_is_not_left_to_its_seed() -> None:
    options = Options(strategy="mesh", mode="calm", habits=frozenset({"will"}))
    scenario = Scenario(3, options)
    assert (scenario.strategy, scenario.mode) == ("mesh", "calm")
    assert (scenario.habits, scenario.troubles) == (frozenset({"will"}), frozenset())


def test_a_failure_names_the_command_that_shows_it() -> None:
    options = Options(strategy="georendezvous", strategy_options=(("rendezvous", 3),))
    assert command_of(7, options) == (
        "python -m geomq.sim.soak --whole --seed 7 --transcript --strategy georendezvous --option rendezvous=3"
    )


def test_a_transcript_says_what_clients_did_and_brokers_logged(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(["--whole", "--seed", "13", "--transcript"]) == 0
    printed = capsys.readouterr().out
    assert f"transcript {run(13).digest}" in printed
    for expected in ("seed 13: ", "] geomq.broker: listening", "is let in by", "acknowledged", "0 violations"):
        assert expected in printed


def test_many_seeds_are_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(["--whole", "--seed", "1", "--strategy", "single"]) == 0
    assert capsys.readouterr().out.startswith("1 seeds of whole brokers: 0 failed; ")


def test_a_transcript_is_of_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        soak.main(["--transcript"])
    assert "--transcript goes with --whole and --seed" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        soak.main(["--storm"])
    assert "--storm goes with --whole" in capsys.readouterr().err
