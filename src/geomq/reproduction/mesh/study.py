"""The runs of a mesh study: a federation mesh forms on an overlay, carries events, loses brokers or links, and heals.

Owns the course of a run and what is read from it, one row each. The routing core is the live one. The course:

    calm     one broker subscribes alone; when its announcement has spread, the other subscribers' homes follow
    rush     all of them subscribe to another group at the same moment, so several stand as core
    quiet    events are published from brokers inside and outside the mesh
    loss     a share of the links or brokers, or the core, vanishes for good; events go on, several each second
"""

import random
from dataclasses import dataclass
from heapq import heappop, heappush
from statistics import fmean

from geomq.errors import UsageError
from geomq.geo import Location, NearestAreas
from geomq.reproduction.mesh.broken_overlay import BrokenOverlay
from geomq.routing.core.events import ClientPublished, ClientSubscribed
from geomq.routing.core.model import BrokerId, ClientId
from geomq.routing.core.topology import BrokerSite, Federation
from geomq.sim.mesh_watch import MeshWatch, groups_of
from geomq.sim.network import Latencies
from geomq.sim.overlay import Links, hops_from, neighbours_in, overlay_links
from geomq.sim.script import Step

ANNOUNCE_MS = 5_000
CALM_MS, FOLLOW_MS, RUSH_MS, QUIET_MS, LOSS_MS, END_MS = 20_000, 35_000, 75_000, 135_000, 155_000, 185_000
AT_REST_MS = 2 * ANNOUNCE_MS
"""A mesh that did not change for so long, although it was announced, has converged."""
QUIET_EVENTS_MS = 5_000
PROBE_EVERY_MS = 250
BLIND_MS, BLIND_EVERY_MS = 500, 25
SUBSCRIBED = 0.3
PUBLISHERS = 8
EQUAL_MS = 10
BROKERS_MAX = 400
FAILURES = ("none", "links", "brokers", "core")


@dataclass(frozen=True, slots=True)
class MeshRun:
    """What a run is given; `places` are the brokers' latitudes and longitudes."""

    topology: str
    places: tuple[tuple[float, float], ...]
    redundancy: int
    failure: str = "none"
    share: float = 0.0
    seed: int = 1
    equal_links: bool = False
    """All links take the same time, as the paper's proofs suppose, instead of what their length suggests."""

    @property
    def cost(self) -> float:
        return len(self.places) ** 2 * (1.0 if self.failure == "none" else 3.0)


@dataclass(frozen=True, slots=True)
class MeshRow:
    """What a run was given and found."""

    topology: str
    brokers: int
    redundancy: int
    failure: str
    share: float
    seed: int
    equal_links: bool
    links: int
    diameter: int
    subscribers: int
    first_announcements: int
    steady_announcements: int
    calm_convergence_ms: int
    rush_convergence_ms: int
    members: int
    mesh_links: int
    delivered: float
    latency_ms: float
    stretch_overlay: float
    stretch_direct: float
    messages_per_delivery: float
    repeats: int
    cut_off: float
    survived_blind: float
    survived_after: float
    repair_ms: float

    @property
    def bound(self) -> int:
        """Theorem 1: what an announcement may cost at most."""
        return 2 * self.links

    @property
    def has_converged(self) -> bool:
        """Theorem 2: both meshes were at rest in the end, or had no time for as many announcements as there are hops
        across the overlay, after which the last broker knows its shortest way."""
        may_ms = self.diameter * ANNOUNCE_MS
        calm_ms, rush_ms = (max(may_ms, took - AT_REST_MS) for took in (RUSH_MS - FOLLOW_MS, QUIET_MS - RUSH_MS))
        return self.calm_convergence_ms < calm_ms and self.rush_convergence_ms < rush_ms


def run_mesh(run: MeshRun) -> MeshRow:
    """Carry out one run."""
    return _Course(run).row()


class _Course:
    """One run from beginning to end."""

    def __init__(self, run: MeshRun) -> None:
        if not 3 <= len(run.places) <= BROKERS_MAX:
            raise UsageError(f"a mesh study has 3 to {BROKERS_MAX} brokers, not {len(run.places)}")
        if run.failure not in FAILURES or not 0 <= run.share < 1:
            raise UsageError(f"no failure {run.failure!r} of {run.share:g}; choose one of {', '.join(FAILURES)}")
        self.run = run
        self.rng = random.Random(f"{run.seed}/mesh study")
        self.federation = federation_at(run.places, self.rng)
        self.links: Links = overlay_links(run.topology, self.federation, seed=run.seed)
        self.watch = MeshWatch()
        self.simulation = self._simulation()
        ids = list(self.federation.ids)
        self.rng.shuffle(ids)
        self.subscribers = ids[: max(2, round(SUBSCRIBED * len(ids)))]
        self.published: dict[bytes, tuple[int, BrokerId, list[BrokerId]]] = {}
        """By payload: when, where, and at which homes the event is to arrive."""

    def _simulation(self) -> BrokenOverlay:
        given = (
            {(a, b): EQUAL_MS for link in self.links for a, b in (link, link[::-1])} if self.run.equal_links else None
        )
        simulation = BrokenOverlay(
            self.federation,
            "mesh",
            links=self.links,
            options={"links": self.links, "redundancy": self.run.redundancy, "announce_ms": ANNOUNCE_MS},
            latencies=Latencies(self.federation, given_ms=given),
            seed=self.run.seed,
            observers=[self.watch],
        )
        self.watch.simulation = simulation
        return simulation

    def row(self) -> MeshRow:
        self.simulation.connect_all()
        self._subscribe(CALM_MS, "calm", self.subscribers[:1])
        self._subscribe(FOLLOW_MS, "calm", self.subscribers[1:])
        self.simulation.advance(RUSH_MS - 1)
        calm_ms = self.watch.changed_ms["calm"] - FOLLOW_MS
        self._subscribe(RUSH_MS, "rush", self.subscribers)
        self.simulation.advance(QUIET_MS)
        rush_ms = self.watch.changed_ms["rush"] - RUSH_MS
        shape = self._shape()
        quiet = self._publish(range(QUIET_MS, QUIET_MS + QUIET_EVENTS_MS, PROBE_EVERY_MS), self.federation.ids)
        self.simulation.advance(LOSS_MS)
        announced = self._announced()
        survival = (0.0, 1.0, 1.0, 0.0) if self.run.failure == "none" else self._lose()
        return MeshRow(
            topology=self.run.topology,
            brokers=len(self.federation.ids),
            redundancy=self.run.redundancy,
            failure=self.run.failure,
            share=self.run.share,
            seed=self.run.seed,
            equal_links=self.run.equal_links,
            links=len(self.links),
            diameter=self._diameter(),
            subscribers=len(self.subscribers),
            first_announcements=announced[0],
            steady_announcements=announced[1],
            calm_convergence_ms=calm_ms,
            rush_convergence_ms=rush_ms,
            members=shape[0],
            mesh_links=shape[1],
            **self._delivery(quiet),
            repeats=sum(arrival.copy > 1 for got in self.watch.arrivals.values() for arrival in got),
            cut_off=survival[0],
            survived_blind=survival[1],
            survived_after=survival[2],
            repair_ms=survival[3],
        )

    def _subscribe(self, t_ms: int, group: str, homes: list[BrokerId]) -> None:
        self.simulation.advance(t_ms)
        for home in homes:
            self.simulation.act(Step(t_ms, home, ClientSubscribed(ClientId(f"{group} {home}"), f"{group}/#")))

    def _publish(self, times: range, homes: tuple[BrokerId, ...]) -> list[bytes]:
        """Events from some brokers in turn; who is to get each is settled when it is published."""
        publishers = self.rng.sample(sorted(homes), min(PUBLISHERS, len(homes)))
        payloads = []
        for number, t_ms in enumerate(times):
            self.simulation.advance(t_ms)
            home = publishers[number % len(publishers)]
            payload = f"{t_ms}".encode()
            reached = hops_from(home, self.simulation.left())
            self.published[payload] = (t_ms, home, [s for s in self.subscribers if s in reached and s != home])
            step = Step(t_ms, home, ClientPublished(ClientId("publisher"), "calm/x", payload=payload))
            self.simulation.act(step)
            payloads.append(payload)
        return payloads

    def _lose(self) -> tuple[float, float, float, float]:
        """Let things vanish; the share cut off, what still arrives before anybody noticed and in the end, and after
        how many milliseconds everything arrives again."""
        simulation = self.simulation
        if self.run.failure == "links":
            simulation.lose(links=self.rng.sample(self.links, max(1, round(self.run.share * len(self.links)))))
        elif self.run.failure == "core":
            simulation.lose(brokers=[self.subscribers[0]])
        else:
            count = max(1, round(self.run.share * len(self.federation.ids)))
            simulation.lose(brokers=self.rng.sample(self.federation.ids, count))
        alive = tuple(broker for broker in self.federation.ids if broker not in simulation.dead)
        blind = self._publish(range(LOSS_MS, LOSS_MS + BLIND_MS, BLIND_EVERY_MS), alive)
        probes = blind + self._publish(range(LOSS_MS + BLIND_MS, END_MS, PROBE_EVERY_MS), alive)
        simulation.advance(END_MS + LOSS_MS - QUIET_MS)
        wanting = sum(s not in simulation.dead and s != self.published[p][1] for p in probes for s in self.subscribers)
        reachable = sum(len(self.published[p][2]) for p in probes)
        late = [p for p in probes if self.published[p][0] >= END_MS - ANNOUNCE_MS]
        missed = [self.published[p][0] for p in probes if self._share_arrived([p]) < 1]
        repair = max(missed) + PROBE_EVERY_MS - LOSS_MS if missed else 0
        cut_off = 1 - reachable / wanting if wanting else 0.0
        return cut_off, self._share_arrived(blind), self._share_arrived(late), float(repair)

    def _share_arrived(self, payloads: list[bytes]) -> float:
        expected = sum(len(self.published[p][2]) for p in payloads)
        if not expected:
            return 1.0
        arrived = sum(
            len({arrival.home for arrival in self.watch.arrivals.get(p, ())} & set(self.published[p][2]))
            for p in payloads
        )
        return arrived / expected

    def _announced(self) -> tuple[int, int]:
        """What the first announcement of the calm group cost, and the dearest of the quiet periods."""
        core = self.subscribers[0]
        mine = {
            seq: count for (group, of, seq), count in self.watch.announcements.items() if (group, of) == ("calm", core)
        }
        first, last = min(mine), max(mine)
        return mine[first], max(count for seq, count in mine.items() if first + 2 <= seq < last)

    def _shape(self) -> tuple[int, int]:
        """Members of the calm mesh, and the links it uses."""
        groups = groups_of(self.simulation, "calm")
        members = [broker for broker, group in groups.items() if group.is_member]
        used = {frozenset((broker, n)) for broker in members for n in groups[broker].mesh_neighbours()}
        return len(members), len(used)

    def _delivery(self, payloads: list[bytes]) -> dict[str, float]:
        took, to_overlay, to_direct = [], [], []
        for payload in payloads:
            _, home, homes = self.published[payload]
            shortest = _fastest(home, neighbours_in(self.federation.ids, self.links), self.simulation.latencies)
            first = {
                a.home: a.latency_ms for a in self.watch.arrivals.get(payload, ()) if a.copy == 1 and a.home in homes
            }
            took += list(first.values())
            to_overlay += [ms / shortest[target] for target, ms in first.items()]
            to_direct += [ms / self.simulation.latencies(home, target) for target, ms in first.items()]
        messages = sum(self.watch.event_messages[payload] for payload in payloads)
        return {
            "delivered": self._share_arrived(payloads),
            "latency_ms": fmean(took),
            "stretch_overlay": fmean(to_overlay),
            "stretch_direct": fmean(to_direct),
            "messages_per_delivery": messages / len(took),
        }

    def _diameter(self) -> int:
        neighbours = neighbours_in(self.federation.ids, self.links)
        return max(max(hops_from(broker, neighbours).values()) for broker in self.federation.ids)


def federation_at(places: tuple[tuple[float, float], ...], rng: random.Random) -> Federation:
    """Brokers at places, their names (which decide between cores) dealt out at random."""
    names = [BrokerId(f"b{number:03}") for number in range(len(places))]
    rng.shuffle(names)
    brokers = [BrokerSite(name, Location(lat, lon)) for name, (lat, lon) in zip(names, places, strict=True)]
    return Federation(brokers, NearestAreas([broker.location for broker in brokers]))


def _fastest(start: BrokerId, neighbours: dict[BrokerId, list[BrokerId]], latencies: Latencies) -> dict[BrokerId, int]:
    """The latency of the fastest way over the overlay from `start` to every broker."""
    found: dict[BrokerId, int] = {}
    queue: list[tuple[int, BrokerId]] = [(0, start)]
    while queue:
        ms, here = heappop(queue)
        if here not in found:
            found[here] = ms
            for there in neighbours[here]:
                heappush(queue, (ms + latencies(here, there), there))
    return found
