"""A broker from start to stop: builds the parts, opens the listeners, keeps the clock, reloads, closes.

Embed it (`async with Broker(config) as broker`) or run it as a process with `run`.
"""

import asyncio
import contextlib
import logging
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from geomq.broker.config.diff import config_changes, reloaded
from geomq.broker.config.settings import Config, Listener
from geomq.broker.connections.listeners import Listeners
from geomq.broker.core import Core
from geomq.broker.operations.logs import setup_logging
from geomq.broker.operations.memory import collection_paused, keep_freed_memory, spare_long_lived
from geomq.broker.operations.memory_watch import MemoryWatch
from geomq.broker.operations.sys_topics import SysTopics
from geomq.broker.operations.view import View
from geomq.broker.parts import Parts
from geomq.broker.peers.federating import client_address, description_of
from geomq.broker.peers.membership import Membership
from geomq.broker.peers.peering import Peering
from geomq.broker.peers.store import Notes, kept_editions
from geomq.broker.platform import SYSTEM, Platform
from geomq.broker.security.access import Access, Security
from geomq.broker.security.acl import load_acl
from geomq.broker.security.certificates import read_trust
from geomq.broker.security.passwords import load_passwords
from geomq.broker.sockets.descriptors import raise_limit
from geomq.broker.sockets.loops import loop_factory
from geomq.broker.state.links import Cloud
from geomq.broker.storage.committer import Committer
from geomq.broker.storage.configured import open_configured_store
from geomq.broker.storage.errors import StoreError
from geomq.broker.storage.store import Store
from geomq.errors import GeomqError
from geomq.mqtt.codec.reasons import ReasonCode
from geomq.routing.core.model import BrokerId
from geomq.routing.federation.outline import outline_of
from geomq.routing.node import Node

if TYPE_CHECKING:
    from geomq.broker.operations.trace_writer import TraceWriter
    from geomq.broker.workers.crew import Crew

log = logging.getLogger("geomq.broker")

MakeCrew = Callable[[int, Sequence[Listener], Platform], "Crew"]
"""Gets workers ready to be started, so many, for these listeners."""

SECOND = 1.0
FAREWELL_S = 0.02


def _make_crew(count: int, listeners: Sequence[Listener], platform: Platform) -> "Crew":
    """Of processes; what they need is not loaded for a broker that has none."""
    from geomq.broker.workers.crew import Crew

    return Crew(count, listeners, platform)


class Broker:
    """One broker on the running event loop. `addresses` are (kind, host, port) once it is started."""

    def __init__(
        self,
        config: Config,
        *,
        platform: Platform = SYSTEM,
        open_store: Callable[[Config], Store] = open_configured_store,
        make_crew: MakeCrew = _make_crew,
    ) -> None:
        self._config = config
        self._open_store = open_store
        self._make_crew = make_crew
        self._platform = platform
        self._listeners = Listeners(platform)
        self._stopping = asyncio.Event()
        self._timers: list[asyncio.TimerHandle] = []
        self._sys_timer: asyncio.TimerHandle | None = None
        self._admin: object | None = None
        self._crew: Crew | None = None
        self._trace: TraceWriter | None = None
        self._parts: Parts | None = None
        self._stopped = False
        self.exit_code = 0

    @property
    def parts(self) -> Parts:
        """What it consists of, once it is started."""
        assert self._parts is not None
        return self._parts

    @property
    def core(self) -> Core:
        return self.parts.core

    @property
    def membership(self) -> Membership | None:
        """Its place in the federation, once it is started."""
        return None if self._parts is None else self._parts.membership

    @property
    def peering(self) -> Peering | None:
        """The links to its peers, if it can have any."""
        return None if self._parts is None else self._parts.peering

    @property
    def cloud(self) -> Cloud | None:
        """The link to the cloud of broadcast groups, if there is one."""
        return None if self._parts is None else self._parts.membership.cloud

    @property
    def crew(self) -> "Crew | None":
        """Those who carry its clients, if it does not do so itself."""
        return self._crew

    @property
    def linked(self) -> bool:
        """Whether this broker is connected with all its peers."""
        peering = self.peering
        return peering is None or set(self.parts.membership.addresses) <= set(peering.connected)

    @property
    def addresses(self) -> list[tuple[str, str, int]]:
        return self._listeners.addresses

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self._listeners.addresses[0][2]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Load what is stored and open every listener; GeomqError in one line if that cannot be."""
        config = self._config
        platform = self._platform
        security = load_security(config, platform)
        for listener in config.listeners:
            await platform.check_free(listener)
        self._store = self._open_store(config)
        with collection_paused():
            state = self._store.load()
        loop = asyncio.get_running_loop()
        durable = self._store.durable
        self._committer = Committer(self._store, self._store_failed, platform=platform) if durable else None
        try:
            platform = await self._start_workers(platform)
            parts = self._parts = Parts(
                config,
                loop=loop,
                node=_make_node(config, platform.new_epoch(), state.notes),
                store=self._store,
                security=security,
                committer=self._committer,
                notes=state.notes,
                platform=platform,
            )
            self._memory = MemoryWatch(
                parts.core,
                parts.handlers,
                retained_bytes=lambda: parts.retention.bytes,
                for_peers=lambda: (0, 0) if parts.peering is None else parts.peering.waiting,
            )
            self.view = View(
                parts.core,
                connections=parts.handlers.connections,
                registry=parts.registry,
                retention=parts.retention,
                membership=parts.membership,
                listeners=self._listeners.addresses,
                links=self._link_gauges,
                held=self._memory.held,
            )
            self._sys = SysTopics(parts.core, parts.publishing, parts.retention)
            self._start_trace()
            with collection_paused():
                parts.load(state)
            self._memory.start()
            await parts.start()
            for listener in config.listeners:
                await self._listeners.open(listener, parts.handlers.make_connection, parts.core.turns)
            if parts.roaming is not None:
                parts.roaming.announce(config.broker.client_address or client_address(self.addresses))
            await self._start_admin()
        except BaseException:
            await self.stop()
            raise
        self._every_second()
        self._publish_sys()
        for kind, host, port in self.addresses:
            log.info("listening", extra={"kind": kind, "host": host, "port": port})

    async def _start_workers(self, platform: Platform) -> Platform:
        """If others are to carry the connections of clients, there may be more of them."""
        wanted = self._config.broker.workers
        count = platform.processors if wanted == "auto" else wanted
        if count == 1:
            return platform
        crew = self._crew = self._make_crew(count, self._config.listeners, platform)
        self._listeners.carry_by(crew)
        await crew.start()
        return replace(platform, descriptors=crew.descriptors)

    def _start_trace(self) -> None:
        section, core = self._config.trace, self.core
        if section.directory is None:
            return
        from geomq.broker.operations.trace_writer import TraceWriter

        start_ms = int(core.wall_s() * 1000)
        outline = outline_of(core.node.strategy.federation, self._config.routing.strategy)
        self._trace = TraceWriter(section, core.node.me, core.counts, outline=outline, start_ms=start_ms)
        self._trace.start(core.loop)
        core.trace(self._trace, steps=section.steps)

    def _link_gauges(self) -> dict[str, float]:
        """How many links and workers there are now, and what waits for them."""
        crew, peering = self.crew, self.peering
        messages, size = (0, 0) if peering is None else peering.waiting
        return {
            "peers_connected": 0 if peering is None else len(peering.connected),
            "cloud_connected": float(self.cloud is not None and self.cloud.up),
            "queued_messages_for_peers": messages,
            "queued_bytes_for_peers": size,
            "workers": 0 if crew is None else len(crew.workers),
            "workers_restarted": 0 if crew is None else crew.restarts,
        }

    async def _start_admin(self) -> None:
        if not self._config.admin.enabled:
            return
        from geomq.broker.operations.admin import make_app
        from geomq.broker.operations.admin_server import AdminServer, load_token

        token = load_token(self._config.admin)
        self._token = token
        server = AdminServer(make_app(self.view, lambda: self._token), self._config.admin)
        await server.start()
        self._admin = server
        self.admin_port = server.port

    # The clock.

    def _every_second(self) -> None:
        self._timers = [self.core.loop.call_later(SECOND, self._every_second)]
        self.parts.sweep()

    def _publish_sys(self) -> None:
        if self._sys_timer is not None:
            self._sys_timer.cancel()
            self._sys_timer = None
        interval_s = self.core.config.metrics.sys_interval_s
        if interval_s and not self._stopping.is_set():
            self._sys_timer = self.core.loop.call_later(interval_s, self._publish_sys)
            self._sys.publish()

    # Changes while running.

    def reload(self, config: Config) -> None:
        """Take over what a running broker may; the rest is named in the log and waits for a restart."""
        taken = reloaded(self.core.config, config)
        security = load_security(taken, self._platform)
        contexts = self._listeners.read_certificates()
        for change in config_changes(self.core.config, config):
            if not change.reloadable:
                log.warning("change needs a restart", extra={"key": str(change)})
        self.parts.take_link_certificates()
        setup_logging(taken.log)
        if self._admin is not None:
            from geomq.broker.operations.admin_server import load_token

            self._token = load_token(taken.admin)
        self._listeners.take_certificates(contexts)
        self.parts.take_config(taken, security)
        self._memory.take_limits()
        self._store.keep_free(taken.persistence.free_bytes_min)
        self._publish_sys()
        log.info("configuration reloaded")

    def _store_failed(self, error: StoreError) -> None:
        """Nothing can be acknowledged any more: say so and give up."""
        log.error("the store failed; stopping", extra={"reason": str(error)})
        self.exit_code = 1
        self._stopping.set()

    # The end.

    def request_stop(self) -> None:
        self._stopping.set()

    async def wait_stopped(self) -> int:
        """Wait for a request to stop, stop, and return the exit code."""
        await self._stopping.wait()
        await self.stop()
        return self.exit_code

    async def stop(self) -> None:
        """Say goodbye to every client, make everything safe, close; the second time there is nothing left to do."""
        if self._stopped:
            return
        self._stopped = True
        self._stopping.set()
        self._listeners.stop()
        for timer in self._timers:
            timer.cancel()
        if self._parts is not None:
            await self._stop_parts(self._parts)
        if self._crew is not None:
            await self._crew.stop()
        if self._trace is not None:
            await self._trace.close()
        if self._committer is not None:
            with contextlib.suppress(StoreError):
                await self._committer.close()
        try:
            self._store.close()
        except StoreError as error:
            log.error("closing the store failed", extra={"reason": str(error)})
            self.exit_code = 1

    async def _stop_parts(self, parts: Parts) -> None:
        core = parts.core
        core.drops.report(finally_=True)
        self._memory.stop()
        parts.note_time(finally_=True)
        parts.driver.stop()
        core.pressure.stop()
        if parts.peering is not None:
            await parts.peering.stop()
        await parts.membership.stop()
        if self._admin is not None:
            await self._admin.stop()  # type: ignore[attr-defined]
        for connection in tuple(parts.handlers.connections):
            connection.dismiss(ReasonCode.SERVER_SHUTTING_DOWN)
        parts.admission.close()
        core.outbox.write_all()
        await asyncio.sleep(FAREWELL_S if core.counts.connections_opened else 0)
        parts.handlers.endings.close()
        await asyncio.sleep(0)


def load_security(config: Config, platform: Platform = SYSTEM) -> Security:
    """Read the password and ACL files, and those about client certificates."""
    auth = config.auth
    passwords = None if auth.password_file is None else load_passwords(auth.password_file, platform.random_bytes)
    acl = None if auth.acl_file is None else load_acl(auth.acl_file)
    peer_acl = None if config.federation.acl_file is None else load_acl(config.federation.acl_file)
    trust = {each: read_trust(each.cafile, each.crlfile) for each in config.listeners if each.tls}
    own = {
        each: Access(
            passwords if each.password_file is None else load_passwords(each.password_file, platform.random_bytes),
            acl if each.acl_file is None else load_acl(each.acl_file),
        )
        for each in config.listeners
        if each.password_file is not None or each.acl_file is not None
    }
    return Security(passwords, acl, peer_acl, trust, listeners=config.listeners, of_listeners=own)


def _make_node(config: Config, epoch: int, notes: Notes) -> Node:
    me = BrokerId(config.broker.name)
    return Node(
        me=me,
        description=description_of(config),
        epoch=epoch,
        rng=random.Random(f"{me}:{epoch}"),
        kept=kept_editions(notes),
        own_strategy=config.routing.strategy,
    )


def run(config: Config, reload: Callable[[], Config] | None = None) -> int:
    """Run a broker until SIGTERM or SIGINT; SIGHUP asks `reload` for the changed config. The exit code."""
    setup_logging(config.log)
    keep_freed_memory()
    raise_limit()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_main(config, reload))


async def _main(config: Config, reload: Callable[[], Config] | None) -> int:
    broker = Broker(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, broker.request_stop)
    await broker.start()
    if reload is not None:
        loop.add_signal_handler(signal.SIGHUP, _reload, broker, reload)
    spare_long_lived()
    return await broker.wait_stopped()


def _reload(broker: Broker, reload: Callable[[], Config]) -> None:
    try:
        broker.reload(reload())
    except GeomqError as error:
        log.error("configuration not reloaded", extra={"reason": str(error)})
