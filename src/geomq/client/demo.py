"""Lively clients for a demonstration, so that there is something to see, hear and drag on the map.

Around every broker vehicles drive in circles and warn who is near, commuters go to and fro and listen to what
concerns them, sensors measure the air, a weather service warns whole regions and a tower follows the aircraft, which
fly from city to city and change to the nearest broker on the way. Distances are ten times those of daily life and time
runs faster, so that all of it is seen on a globe.
"""

import asyncio
import contextlib
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from geomq.client.client import Client
from geomq.client.errors import ClientError
from geomq.geo import Location, destination, distance_m

HOST = "127.0.0.1"
RETRY_S = 1.0
NEAR_M = 90_000.0
TOWN_M = 250_000.0
REGION_M = 1_200_000.0
OCEAN_M = 4_000_000.0
STEP_M = 25_000.0
FLIGHT_M_PER_S = 60_000.0
AIRCRAFT_MAX = 12
WARNINGS = ("storm", "flood", "heat", "ice", "smoke")


class City(NamedTuple):
    """A broker that demo clients live around."""

    name: str
    port: int
    location: Location


class DemoClient(ABC):
    """A client with a place and a life; when its broker goes away it tries again."""

    def __init__(self, name: str, city: City, at: Location, dice: random.Random) -> None:
        self.name = name
        self.city = city
        self.at = at
        self.dice = dice
        self._dragged = asyncio.Event()

    @abstractmethod
    async def subscribe(self, client: Client) -> None:
        """Subscribe to what it follows."""

    @abstractmethod
    async def act(self, client: Client) -> None:
        """Do one thing."""

    def pause_s(self) -> float:
        return self.dice.uniform(1.0, 3.0)

    def put(self, to: Location) -> None:
        """It goes on from there."""
        self.at = to

    def drag(self, to: Location) -> None:
        """Somebody put it there; its broker hears of it at once."""
        self.put(to)
        self._dragged.set()

    async def live(self) -> None:
        while not _cancelled():
            with contextlib.suppress(ClientError):
                async with Client(HOST, self.city.port, client_id=self.name, at=self.at) as client:
                    await self._stay(client, self.city)
            await asyncio.sleep(RETRY_S)

    async def _stay(self, client: Client, city: City) -> None:
        """Live at this broker until it is time for another."""
        hearing = asyncio.create_task(_hear(client))
        try:
            await self.subscribe(client)
            while self.city is city and not hearing.done() and not _cancelled():
                await self._rest_or_act(client)
        finally:
            hearing.cancel()

    async def _rest_or_act(self, client: Client) -> None:
        """Do one thing after a pause, unless somebody drags it meanwhile."""
        try:
            async with asyncio.timeout(self.pause_s()):
                await self._dragged.wait()
        except TimeoutError:
            await self.act(client)
        else:
            self._dragged.clear()
            await self.go(client, self.at)

    async def go(self, client: Client, to: Location) -> None:
        self.at = to
        await client.move(to.lat, to.lon)


class Vehicle(DemoClient):
    """Drives around a centre and tells who is near how fast; hears the vehicles around it."""

    def __init__(self, name: str, city: City, at: Location, dice: random.Random) -> None:
        super().__init__(name, city, at, dice)
        self._radius_m = dice.uniform(40_000, 180_000)
        self._turn_deg = dice.choice((-1, 1)) * dice.uniform(4, 12)
        self.put(at)

    def put(self, to: Location) -> None:
        self._bearing_deg = self.dice.uniform(0, 360)
        self._centre = to
        self.at = to

    async def subscribe(self, client: Client) -> None:
        await client.subscribe("traffic/#", within=(self._centre.lat, self._centre.lon, 2 * self._radius_m))

    async def act(self, client: Client) -> None:
        self._bearing_deg = (self._bearing_deg + self._turn_deg) % 360
        await self.go(client, destination(self._centre, self._bearing_deg, self._radius_m))
        if self.dice.random() < 0.4:
            speed = f"{self.dice.uniform(5, 120):.0f} km/h"
            await client.publish(f"traffic/{self.city.name}/{self.name}", speed, to=(*self.at, NEAR_M))


class Commuter(DemoClient):
    """Goes to and fro; hears warnings for where it is, and of the air and the people around its home."""

    def __init__(self, name: str, city: City, at: Location, dice: random.Random) -> None:
        super().__init__(name, city, at, dice)
        self.put(at)

    def put(self, to: Location) -> None:
        self._ends = [to, destination(to, self.dice.uniform(0, 360), self.dice.uniform(150_000, 700_000))]
        self.at = to

    async def subscribe(self, client: Client) -> None:
        home = self._ends[0]
        await client.subscribe("warning/#")
        for topics in ("air/#", "hello/#"):
            await client.subscribe(topics, within=(home.lat, home.lon, TOWN_M))

    async def act(self, client: Client) -> None:
        if distance_m(self.at, self._ends[1]) < 1_000:
            self._ends.reverse()
            await client.publish(f"hello/{self.city.name}/{self.name}", "I am here", to=(*self.at, NEAR_M))
        await self.go(client, towards(self.at, self._ends[1], STEP_M))


class Sensor(DemoClient):
    """Stands somewhere and measures the air for everybody in town."""

    async def subscribe(self, client: Client) -> None:
        await client.subscribe(f"sensor/{self.name}/set")

    def pause_s(self) -> float:
        return self.dice.uniform(3.0, 8.0)

    async def act(self, client: Client) -> None:
        await self.go(client, self.at)
        value = f"{self.dice.gauss(20, 6):.1f} µg/m³"
        await client.publish(f"air/{self.city.name}/{self.name}", value, to=(*self.at, TOWN_M))


class WeatherService(DemoClient):
    """Warns regions around its city, and now and then ones far away."""

    async def subscribe(self, client: Client) -> None:
        await client.subscribe("air/#", within=(*self.city.location, TOWN_M))

    def pause_s(self) -> float:
        return self.dice.uniform(5.0, 12.0)

    async def act(self, client: Client) -> None:
        reach_m = OCEAN_M if self.dice.random() < 0.3 else REGION_M
        middle = destination(self.at, self.dice.uniform(0, 360), self.dice.uniform(0, reach_m))
        radius_m = self.dice.uniform(150_000, 700_000)
        warning = self.dice.choice(WARNINGS)
        await client.publish(f"warning/{warning}", f"{warning} from {self.city.name}", to=(*middle, radius_m), qos=1)


class Tower(DemoClient):
    """Follows the aircraft around its city and over the ocean next to it."""

    async def subscribe(self, client: Client) -> None:
        await client.subscribe("flight/#", within=(*self.at, OCEAN_M))

    def pause_s(self) -> float:
        return 30.0

    async def act(self, client: Client) -> None:
        await self.go(client, self.at)


class Aircraft(DemoClient):
    """Flies from city to city, says where it is, and changes to the nearest broker on the way."""

    def __init__(self, name: str, city: City, dice: random.Random, cities: list[City]) -> None:
        super().__init__(name, city, city.location, dice)
        self._cities = cities
        self._goal = dice.choice(cities)

    def pause_s(self) -> float:
        return 1.0

    async def subscribe(self, client: Client) -> None:
        await client.subscribe("warning/#")

    async def act(self, client: Client) -> None:
        if distance_m(self.at, self._goal.location) < FLIGHT_M_PER_S:
            self._goal = self.dice.choice(self._cities)
        await self.go(client, towards(self.at, self._goal.location, FLIGHT_M_PER_S))
        await client.publish(f"flight/{self.name}", f"to {self._goal.name}")
        nearest = min(self._cities, key=lambda city: distance_m(self.at, city.location))
        # A border is crossed for good before another broker is asked: no to and fro along it.
        if distance_m(self.at, nearest.location) < 0.8 * distance_m(self.at, self.city.location):
            self.city = nearest


class Demo:
    """All demo clients of a federation: `run` lets them live until cancelled, `move` puts one elsewhere."""

    def __init__(
        self, ports: Mapping[str, int], places: Mapping[str, Location], *, each: int = 10, seed: int = 1
    ) -> None:
        dice = random.Random(seed)
        cities = [City(name, port, places[name]) for name, port in ports.items()]
        crowd = [client for city in cities for client in _residents(city, each, dice)]
        flights = min(AIRCRAFT_MAX, 4 * len(cities)) if len(cities) > 1 else 0
        crowd += [
            Aircraft(f"flight-{number + 1}", dice.choice(cities), random.Random(dice.random()), cities)
            for number in range(flights)
        ]
        self.clients: dict[str, DemoClient] = {client.name: client for client in crowd}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for client in self.clients.values():
                group.create_task(client.live())

    async def move(self, client_id: str, to: Location) -> bool:
        """Move a demo client; False if there is no such client."""
        client = self.clients.get(client_id)
        if client is None:
            return False
        client.drag(to)
        return True


def towards(here: Location, there: Location, step_m: float) -> Location:
    """The place `step_m` ahead on the great circle from here to there, or there if that is nearer."""
    if distance_m(here, there) <= step_m:
        return there
    phi, psi, turn = math.radians(here.lat), math.radians(there.lat), math.radians(there.lon - here.lon)
    across = math.sin(turn) * math.cos(psi)
    ahead = math.cos(phi) * math.sin(psi) - math.sin(phi) * math.cos(psi) * math.cos(turn)
    return destination(here, math.degrees(math.atan2(across, ahead)), step_m)


def _residents(city: City, count: int, dice: random.Random) -> list[DemoClient]:
    """Some of each kind, the rare ones first so that a small crowd has them too."""
    kinds: list[type[DemoClient]] = [Tower, WeatherService, Sensor]
    kinds += [Vehicle if number % 2 else Commuter for number in range(max(0, count - len(kinds)))]
    residents = []
    for number, kind in enumerate(kinds[:count]):
        at = destination(city.location, dice.uniform(0, 360), dice.uniform(0, 400_000))
        name = f"{kind.__name__.lower().removesuffix('service')}-{city.name}-{number}"
        residents.append(kind(name, city, at, random.Random(dice.random())))
    return residents


def _cancelled() -> bool:
    """Whether this task is to end. It may not have noticed: until Python 3.12, wait_for forgets a cancellation that
    comes together with its answer."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _hear(client: Client) -> None:
    with contextlib.suppress(ClientError):
        async for _ in client:
            pass
