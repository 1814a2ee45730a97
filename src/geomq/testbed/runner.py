"""A testbed from start to stop: cloud, brokers, links between them, clients, and one directory with all that happened.

    manifest.json             the plan, the replayer's report, the brokers' numbers     (written last)
    workload/                 the dataset, if it was made on the spot
    brokers/<name>/           config and log of each broker, and of the cloud
    trace/                    what brokers did, record by record
    replay/                   what clients sent and received

Owns the wiring: who connects to whom through which emulated link. Of a run that fails, logs stay and the manifest is
missing.
"""

import asyncio
import re
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from geomq.broker.config import settings
from geomq.broker.config.recording import Trace
from geomq.broker.config.settings import Config, Listener
from geomq.broker.local_federation import HOST, free_ports
from geomq.errors import ConfigError, DataError, UsageError
from geomq.geo import Circle, Location, PolygonAreas, distance_m, fence_text, location_text
from geomq.testbed.emulated_link import Conditions, EmulatedLink
from geomq.testbed.plan import CLOUD, TestbedPlan, conditions_of
from geomq.testbed.processes import Federation, MosquittoProcess, stoppable
from geomq.testbed.replay import ReplayReport, ReplaySettings, replay
from geomq.testbed.replay_worker import BrokerAddress
from geomq.workload.dataset import DatasetSpec, write_manifest
from geomq.workload.generation.generate import write_workload
from geomq.workload.generation.presets import Request, build
from geomq.workload.world import World

TRACE_FILE_S = 3600.0
SETTLED_S = 0.5
SETTLED_TRIES_MAX = 120
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RunReport:
    """What came of a testbed."""

    directory: Path
    replay: ReplayReport
    brokers: dict[str, dict[str, float]]
    lost_segments: int


def run_testbed(plan: TestbedPlan, out: Path, *, say: Say = lambda _: None) -> RunReport:
    """Start everything, run the workload, stop everything; what happened is in `out`."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise UsageError(f"{out} is not empty; choose another directory")
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror or error}") from None
    check_names(plan)
    with asyncio.Runner() as runner:
        return runner.run(stoppable(_Testbed(plan, out.absolute(), say).run()))


def broker_name(text: str) -> str:
    """A workload's broker as brokers may be called."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)


def make_dataset(plan: TestbedPlan, out: Path) -> Path:
    """The workload as a dataset on disk."""
    if plan.workload.dataset is not None:
        return Path(plan.workload.dataset)
    request = _request(plan)
    write_workload(out / "workload", *build(request), request, overwrite=False)
    return out / "workload"


def _request(plan: TestbedPlan) -> Request:
    section = plan.workload
    assert section.preset is not None
    seconds = None if section.seconds is None else int(section.seconds)
    return Request(section.preset, clients=section.clients, seconds=seconds, seed=plan.testbed.seed)


def check_names(plan: TestbedPlan) -> None:
    """Refuse a plan that names brokers its workload does not have, before anything is written."""
    dataset = plan.workload.dataset
    world = build(_request(plan))[0] if dataset is None else DatasetSpec(Path(dataset)).world
    known = [broker_name(place.name) for place in world.places]
    named = [broker.name for broker in plan.brokers] + [name for link in plan.links for name in link.between]
    if plan.cloud.enabled and plan.cloud.broker is not None:
        named.append(plan.cloud.broker)
    for name in named:
        if name not in (*known, CLOUD):
            raise ConfigError(f"the workload has no broker {name!r}, only {', '.join(sorted(known))}")


class _Testbed:
    def __init__(self, plan: TestbedPlan, out: Path, say: Say) -> None:
        self._plan, self._out, self._say = plan, out, say
        self._workload = make_dataset(plan, out)
        self._world = DatasetSpec(self._workload).world
        self._all_names = [broker_name(place.name) for place in self._world.places]
        cloud = plan.cloud.broker if plan.cloud.enabled else None
        self._names = [name for name in self._all_names if name != cloud]
        self._conditions = {frozenset(link.between): conditions_of(link) for link in plan.links}
        self._links: list[EmulatedLink] = []
        self._stack = AsyncExitStack()

    async def run(self) -> RunReport:
        async with self._stack:
            self._say("starting brokers")
            cloud_port = await self._start_cloud()
            ports = dict(zip(self._names, free_ports(len(self._names)), strict=True))
            configs = await self._configs(ports, cloud_port)
            federation = await self._stack.enter_async_context(Federation(configs, self._out / "brokers"))
            addresses = [await self._client_address(name, ports, cloud_port) for name in self._all_names]
            await asyncio.sleep(self._plan.testbed.settle_s)
            self._say("clients act")
            section = self._plan.workload
            seconds = section.seconds if section.preset is None else None
            how = ReplaySettings(section.speed, section.processes, section.qos, seconds)
            report = await self._replay(addresses, how, federation)
            numbers = {name: await broker.numbers() for name, broker in federation.brokers.items()}
            lost = sum(link.segments_lost for link in self._links)
        made = RunReport(self._out, report, numbers, lost)
        self._write(made)
        return made

    async def _replay(self, addresses: list[BrokerAddress], how: ReplaySettings, brokers: Federation) -> ReplayReport:
        """Replay in a thread, so that links live on; it gives up when this is cancelled."""
        loop, stopped = asyncio.get_running_loop(), threading.Event()

        def settled() -> None:
            asyncio.run_coroutine_threadsafe(self._settled(brokers), loop).result()

        out = self._out / "replay"
        try:
            return await asyncio.to_thread(
                replay, self._workload, addresses, how, out, settled=settled, stopped=stopped.is_set
            )
        except asyncio.CancelledError:
            stopped.set()
            raise

    async def _settled(self, federation: Federation) -> None:
        """Until every link is up and no broker delivers anything more: a broken link holds events back for a while."""
        await federation.wait_linked()
        before: list[float] = []
        for _ in range(SETTLED_TRIES_MAX):
            now = [(await broker.numbers())["events_delivered"] for broker in federation.brokers.values()]
            if now == before:
                return
            before = now
            await asyncio.sleep(SETTLED_S)

    async def _start_cloud(self) -> int | None:
        if not self._plan.cloud.enabled:
            return None
        folder = self._out / "brokers" / CLOUD
        return (await self._stack.enter_async_context(MosquittoProcess(CLOUD, folder))).port

    async def _through(self, port: int, conditions: Conditions) -> int:
        """The port that leads there under these conditions."""
        if conditions == Conditions():
            return port
        link = EmulatedLink((HOST, port), conditions, seed=self._plan.testbed.seed + len(self._links))
        self._links.append(await self._stack.enter_async_context(link))
        return link.port

    async def _client_address(self, name: str, ports: dict[str, int], cloud_port: int | None) -> BrokerAddress:
        port = ports.get(name, cloud_port)
        assert port is not None
        hop = next((conditions_of(each) for each in self._plan.brokers if each.name == name), Conditions())
        return BrokerAddress(name, HOST, await self._through(port, hop), plain=name not in ports)

    async def _configs(self, ports: dict[str, int], cloud_port: int | None) -> list[Config]:
        """The config of every broker; of two brokers the one whose name sorts first dials, so its way is emulated."""
        peer_ports = dict(zip(self._names, free_ports(len(self._names)), strict=True))
        made = []
        for name in self._names:
            peers = []
            for other in self._names:
                if other != name:
                    port = peer_ports[other]
                    if name < other:
                        port = await self._through(port, self._between(name, other))
                    peers.append(settings.Peer(name=other, address=f"{HOST}:{port}", **self._place(other)))
            cloud = settings.Cloud()
            if cloud_port is not None:
                to_cloud = await self._through(cloud_port, self._between(name, CLOUD))
                cloud = settings.Cloud(address=f"{HOST}:{to_cloud}")
            made.append(self._config(name, ports[name], peer_ports[name], tuple(peers), cloud))
        return made

    def _config(
        self, name: str, port: int, peer_port: int, peers: tuple[settings.Peer, ...], cloud: settings.Cloud
    ) -> Config:
        common, place = self._plan.testbed, self._place(name)
        own = next((broker.options for broker in self._plan.brokers if broker.name == name), {})
        folder = self._out / "brokers" / name
        return Config(
            broker=settings.BrokerSettings(name=name, location=place["location"], data_dir=str(folder / "data")),
            listeners=(Listener(host=HOST, port=port),),
            limits=settings.Limits(connections_per_address_max=0, pending_per_address_max=0),
            persistence=settings.Persistence(enabled=common.durable),
            metrics=settings.Metrics(sys_interval_s=0),
            routing=settings.Routing(strategy=common.strategy, options={**common.options, **own}),
            federation=settings.Federation(host=HOST, port=peer_port, area=place["area"]),
            peers=peers,
            cloud=cloud,
            trace=Trace(
                directory=str(self._out / "trace") if common.trace else None,
                steps=common.trace,
                file_s_max=TRACE_FILE_S,
            ),
        )

    def _position(self, name: str) -> int:
        return self._all_names.index(name)

    def _place(self, name: str) -> dict[str, Any]:
        """Where a broker stands, and its area if the workload gives circles; otherwise the nearest broker serves."""
        position = self._position(name)
        place = self._world.places[position]
        area = circle_of(self._world, position)
        return {
            "location": location_text(Location(place.lat, place.lon)),
            "area": None if area is None else fence_text(area),
        }

    def _between(self, name: str, other: str) -> Conditions:
        given = self._conditions.get(frozenset((name, other)))
        if given is not None:
            return given
        if CLOUD in (name, other) or not self._plan.testbed.ms_per_km:
            return Conditions()
        places = [self._world.places[self._position(each)] for each in (name, other)]
        km = distance_m(*(Location(place.lat, place.lon) for place in places)) / 1000.0
        return Conditions(latency_ms=km * self._plan.testbed.ms_per_km)

    def _write(self, report: RunReport) -> None:
        facts = {
            "strategy": self._plan.testbed.strategy,
            "names": self._all_names,
            "cloud": self._plan.cloud.broker if self._plan.cloud.enabled else None,
            "workload": str(self._workload.relative_to(self._out))
            if self._workload.is_relative_to(self._out)
            else str(self._workload),
            "plan": msgspec.to_builtins(self._plan),
            "replay": report.replay.as_json(),
            "brokers": report.brokers,
            "segments_lost": report.lost_segments,
        }
        write_manifest(self._out, {"kind": "testbed", **facts})


def circle_of(world: World, position: int) -> Circle | None:
    """The area of a broker, if it is a circle."""
    if not isinstance(world.areas, PolygonAreas):
        return None
    area = world.areas.fences[position]
    return area if isinstance(area, Circle) else None
