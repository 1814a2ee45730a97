"""Lively clients for a demonstration: walkers around each broker who say where they are and talk to who is near."""

import asyncio
import contextlib
import random
from collections.abc import Mapping

from geomq.client.client import Client
from geomq.client.errors import ClientError
from geomq.geo import Location

STEP_S = 1.0
STEP_DEG = 0.01
NEAR_M = 5_000.0


async def walkers(ports: Mapping[str, int], places: Mapping[str, Location], *, each: int, seed: int = 1) -> None:
    """Run `each` walkers at every broker until cancelled."""
    dice = random.Random(seed)
    async with asyncio.TaskGroup() as group:
        for name, port in ports.items():
            for number in range(each):
                at = places[name]
                start = Location(at.lat + dice.uniform(-0.05, 0.05), at.lon + dice.uniform(-0.05, 0.05))
                group.create_task(_walk(f"walker-{name}-{number}", port, start, random.Random(dice.random())))


async def _walk(name: str, port: int, place: Location, dice: random.Random) -> None:
    """Walk, greet who is near, and hear who greets; start again if the broker goes away."""
    while True:
        with contextlib.suppress(ClientError):
            async with Client("127.0.0.1", port, client_id=name, at=place) as client:
                hearing = asyncio.create_task(_hear(client))
                try:
                    await client.subscribe("hello/#", within=(place.lat, place.lon, 10 * NEAR_M))
                    while True:
                        await asyncio.sleep(STEP_S * dice.uniform(0.5, 1.5))
                        place = _step(place, dice)
                        await client.move(place.lat, place.lon)
                        if dice.random() < 0.3:
                            await client.publish(f"hello/{name}", b"hi", to=(place.lat, place.lon, NEAR_M))
                finally:
                    hearing.cancel()
        await asyncio.sleep(STEP_S)


def _step(place: Location, dice: random.Random) -> Location:
    lat = min(90.0, max(-90.0, place.lat + dice.uniform(-STEP_DEG, STEP_DEG)))
    lon = (place.lon + dice.uniform(-STEP_DEG, STEP_DEG) + 180.0) % 360.0 - 180.0
    return Location(lat, lon)


async def _hear(client: Client) -> None:
    with contextlib.suppress(ClientError):
        async for _ in client:
            pass
