"""Debian's Mosquitto as the cloud of broadcast groups, for tests: started, killed and started again on one port."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.broker.federated import configs, federation, free_ports

from geomq.broker.config import settings
from geomq.broker.config.settings import Config
from geomq.broker.server import Broker
from geomq.client import Client, Message

needs_mosquitto = pytest.mark.skipif(
    shutil.which("mosquitto") is None, reason="mosquitto is not installed: broadcast groups are not tested live"
)


class MosquittoCloud:
    """One Mosquitto that keeps nothing when it is killed; `log` is what it did."""

    def __init__(self, folder: Path, extra: str = "") -> None:
        self.port = free_ports(1)[0]
        self._folder = folder
        self._log = folder / "mosquitto.log"
        self._extra = extra
        self._process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> list[str]:
        return self._log.read_text(errors="replace").splitlines()

    async def start(self) -> None:
        config = self._folder / "mosquitto.conf"
        access = "" if "allow_anonymous" in self._extra else "allow_anonymous true\n"
        config.write_text(
            f"listener {self.port} 127.0.0.1\n{access}log_dest stderr\nlog_type all\n"
            f"sys_interval 0\nmax_queued_messages 100000\n{self._extra}\n"
        )
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec("mosquitto", "-c", str(config), stderr=log)
        for _ in range(200):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return
        raise AssertionError("Mosquitto does not start")

    async def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None


@asynccontextmanager
async def mosquitto(folder: Path, extra: str = "") -> AsyncIterator[MosquittoCloud]:
    cloud = MosquittoCloud(folder, extra)
    await cloud.start()
    try:
        yield cloud
    finally:
        await cloud.kill()


def cloud_configs(cloud: settings.Cloud, options: dict[str, Any], *, brokers: int) -> dict[str, Config]:
    """The config of each broker of a federation of broadcast groups."""
    configured = configs("broadcast_groups", options, brokers=brokers)
    return {name: msgspec.structs.replace(config, cloud=cloud) for name, config in configured.items()}


@asynccontextmanager
async def groups(cloud: MosquittoCloud, *, brokers: int = 3, **options: Any) -> AsyncIterator[dict[str, Broker]]:
    """Brokers in fixed groups (or as `options` say), all linked to the cloud."""
    configured = cloud_configs(settings.Cloud(address=cloud.address), options, brokers=brokers)
    async with federation(configured) as running:
        yield running


class Listening:
    """A client that notes every message it receives."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.messages: list[Message] = []
        self._task = asyncio.create_task(self._listen())

    @property
    def got(self) -> list[bytes]:
        return [message.payload for message in self.messages]

    async def _listen(self) -> None:
        async for message in self.client:
            self.messages.append(message)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def join(stack: AsyncExitStack, port: int, name: str, **options: Any) -> Listening:
    """A client at a broker, be it ours or the cloud."""
    client = await stack.enter_async_context(Client("127.0.0.1", port, client_id=name, **options))
    listening = Listening(client)
    stack.push_async_callback(listening.stop)
    return listening
