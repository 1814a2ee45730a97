"""The walkers of a demonstration really walk and talk."""

import asyncio

import pytest

from geomq.broker.local_federation import THREE_REGIONS, LocalFederation, local_configs
from geomq.client import Client
from geomq.client.demo import walkers


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_walkers_greet_who_is_near() -> None:
    site = THREE_REGIONS[0]
    async with LocalFederation(local_configs([site], "single")) as running:
        port = running.brokers[site.name].port
        walking = asyncio.create_task(walkers({site.name: port}, {site.name: site.location}, each=6))
        async with Client("127.0.0.1", port, at=site.location) as client:
            await client.subscribe("hello/#")
            heard = await asyncio.wait_for(anext(aiter(client.messages)), 20)
        walking.cancel()
        await asyncio.gather(walking, return_exceptions=True)
    assert str(heard.topic).startswith("hello/walker-paris-")
