"""The demo clients really move, talk, hear and go where they are put."""

import asyncio
import contextlib
import random

import pytest
from tests import patience
from tests.broker.federated import until

from geomq.broker.local_federation import THREE_REGIONS, LocalFederation, local_configs
from geomq.client import Client
from geomq.client.demo import Aircraft, City, Demo, Vehicle, WeatherService, towards
from geomq.geo import Location, distance_m

PARIS, FRANKFURT, COLUMBUS = (site.location for site in THREE_REGIONS)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_demo_clients_talk_in_every_region_and_go_where_they_are_put() -> None:
    async with LocalFederation(local_configs(THREE_REGIONS, "flood_events")) as running:
        ports = {site.name: running.brokers[site.name].port for site in THREE_REGIONS}
        demo = Demo(ports, {site.name: site.location for site in THREE_REGIONS}, each=5)
        living = asyncio.create_task(demo.run())
        async with asyncio.timeout(60), Client("127.0.0.1", ports["paris"], at=PARIS) as client:
            await client.subscribe("flight/#")
            heard = await anext(aiter(client.messages))
            assert heard.topic.startswith("flight/flight-")
            name = next(name for name in demo.clients if name.startswith("vehicle-columbus"))
            assert await demo.move(name, PARIS)
            view = running.brokers["columbus"].view
            while (at := getattr(view.client(name), "location", None)) is None or distance_m(at, PARIS) > 200_000:
                await asyncio.sleep(0.1)
        assert not await demo.move("nobody", PARIS)
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)


def test_an_aircraft_changes_to_the_nearest_broker_on_its_way() -> None:
    class Silent:
        async def move(self, lat: float, lon: float) -> None: ...

        async def publish(self, topic: str, payload: str) -> None: ...

    cities = [City("paris", 1, PARIS), City("columbus", 2, COLUMBUS)]
    aircraft = Aircraft("flight-1", cities[0], random.Random(1), [cities[1]] * 2)
    aircraft._cities = cities
    aircraft._goal = cities[1]

    async def fly() -> None:
        for _ in range(120):
            await aircraft.act(Silent())  # type: ignore[arg-type]
            if aircraft.city is cities[1]:
                return

    patience.run(fly())
    assert aircraft.city is cities[1]
    assert distance_m(aircraft.at, COLUMBUS) < distance_m(aircraft.at, PARIS)


def test_a_client_that_did_not_hear_its_cancellation_ends_all_the_same() -> None:
    class Deaf(Vehicle):
        stays = asyncio.Event()

        async def _stay(self, client: Client, city: City) -> None:
            self.stays.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)

    async def cancel() -> bool:
        async with LocalFederation(local_configs(THREE_REGIONS[:1], "single")) as running:
            city = City("paris", running.brokers["paris"].port, PARIS)
            living = asyncio.create_task(Deaf("deaf", city, PARIS, random.Random(1)).live())
            await asyncio.wait_for(Deaf.stays.wait(), 30)
            living.cancel()
            await asyncio.wait([living], timeout=60)
            return living.done()

    assert patience.run(cancel())


def test_a_vehicle_goes_on_from_where_it_was_put() -> None:
    vehicle = Vehicle("v", City("paris", 1, PARIS), PARIS, random.Random(1))
    vehicle.put(COLUMBUS)
    assert vehicle.at == COLUMBUS


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_broker_hears_at_once_where_a_client_was_put_however_seldom_it_acts() -> None:
    class Idle(WeatherService):
        def pause_s(self) -> float:
            return 1e6

    async with LocalFederation(local_configs(THREE_REGIONS[:1], "single")) as running:
        broker = running.brokers["paris"]
        demo = Demo({}, {})
        idle = Idle("idle", City("paris", broker.port, PARIS), PARIS, random.Random(1))
        demo.clients["idle"] = idle
        living = asyncio.create_task(demo.run())
        await until(lambda: broker.view.client("idle") is not None)
        assert await demo.move("idle", COLUMBUS)
        await until(lambda: getattr(broker.view.client("idle"), "location", None) == COLUMBUS)
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)


def test_steps_follow_the_great_circle_and_do_not_overshoot() -> None:
    place = PARIS
    for _ in range(200):
        before, place = distance_m(place, COLUMBUS), towards(place, COLUMBUS, 40_000)
        assert distance_m(place, COLUMBUS) <= max(0.0, before - 39_990)
    assert place == COLUMBUS
    assert towards(Location(0, 0), Location(0, 0), 1) == Location(0, 0)


def test_a_single_broker_has_no_flights() -> None:
    demo = Demo({"paris": 1}, {"paris": PARIS}, each=12)
    assert len(demo.clients) == 12
    assert not any(name.startswith("flight") for name in demo.clients)
