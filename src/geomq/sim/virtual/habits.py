"""What clients do in a run: one coroutine for each habit, going on until the run closes.

A habit only decides when; how a client does it is the device's.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from geomq.mqtt.codec.types import V5, V311
from geomq.sim.virtual.device import Device
from geomq.sim.virtual.profile import Profile
from geomq.sim.virtual.records import Wish
from geomq.sim.virtual.scenario import ALONE, CLOSING_S, HEALED_S, PLAIN, QUIET_S, SHARED, TOPICS, TROUBLE_S, Stream
from geomq.sim.virtual.world import World

PUBLISHERS = 5
STANDING = 6
HOPPERS, HOPPERS_IN_STORM = (2, (0.3, 3.0)), (6, (0.05, 0.6))
"""How many there are, and how long until one of them hops."""

Habit = Callable[[World, random.Random], Coroutine[Any, Any, None]]


def make_publishers(world: World) -> list[Device]:
    names = world.scenario.names
    made = []
    for number in range(PUBLISHERS):
        home = names[number % len(names)]
        version = V5 if number < 3 else world.rng.choice([V5, V311])
        place = world.scenario.near(home) if world.rng.random() < 0.8 else None
        made.append(world.device(Profile(f"p{number}", version), home, place))
    return made


def make_standing(world: World) -> list[Device]:
    """Clients that keep their sessions and stay where they are, with what they want."""
    made = []
    for number in range(STANDING):
        home = world.rng.choice(world.scenario.names)
        device = world.device(Profile(f"s{number}"), home, world.scenario.near(home))
        for wish in world.scenario.wishes(3):
            device.subscribe(wish)
        made.append(device)
    if "plain" in world.scenario.habits:
        for number, home in enumerate(world.rng.choices(world.scenario.names, k=3)):
            profile = Profile(f"q{number}", world.rng.choice([V5, V311]), expiry_s=0 if number else 3_600)
            device = world.device(profile, home, None)
            device.subscribe(Wish(f"{PLAIN}/#", world.rng.choice([0, 1])))
            made.append(device)
    return made


async def publish(world: World, device: Device, stream: Stream, rng: random.Random) -> None:
    """Often while all is well and while there is trouble, rarely while it heals."""
    while not world.closing:
        at_s = world.elapsed_s
        slower = 6.0 if HEALED_S < at_s < QUIET_S else 1.0
        await asyncio.sleep(slower * stream.pause_s * rng.uniform(0.5, 1.5))
        if world.closing or world.elapsed_s > CLOSING_S - 2.0:
            return
        for number in range(stream.burst):
            if device.unanswered < 40:
                fence = stream.fence if device.profile.version == V5 else None
                plain = number % 3 < 2 or not stream.topic.startswith(PLAIN)
                device.publish(stream.topic, stream.qos, fence=fence, note="" if plain else "not plain")


async def hop(world: World, rng: random.Random) -> None:
    """Kept sessions that follow their clients from broker to broker."""
    devices, (crowd, pause_s) = [], HOPPERS_IN_STORM if world.scenario.storm else HOPPERS
    for number in range(crowd):
        device = world.device(Profile(f"h{number}"), rng.choice(world.scenario.names), None)
        device.subscribe(Wish("news/+", 2))
        device.subscribe(Wish("alarm/#", rng.choice([1, 2])))
        device.come()
        devices.append(device)
    await world.until(3.0)
    while world.elapsed_s < HEALED_S:
        await asyncio.sleep(rng.uniform(*pause_s))
        device = rng.choice(devices)
        if device.unanswered < 10:
            device.publish("load", 2)
        device.go_to(rng.choice(world.scenario.names))


async def take_over(world: World, rng: random.Random) -> None:
    """The same client at two brokers at once: one of them must give it up."""
    home = rng.choice(world.scenario.names)
    device = world.device(Profile("t0"), home, None)
    device.subscribe(Wish("news/#", 1))
    device.come()
    await world.until(3.0)
    while world.elapsed_s < HEALED_S:
        await asyncio.sleep(rng.uniform(1.0, 5.0))
        link = await device.connect_once(rng.choice(world.scenario.names))
        if link is not None:
            world.loop.create_task(device.watch(link))


async def move(world: World, rng: random.Random) -> None:
    """Clients that stay connected and go from place to place."""
    devices = []
    for number in range(2):
        home = rng.choice(world.scenario.names)
        version = V5 if number else V311
        device = world.device(Profile(f"m{number}", version), home, world.scenario.near(home))
        fence = world.scenario.fence() if version == V5 else None
        device.subscribe(Wish("news/+", 2, fence))
        device.subscribe(Wish("alarm/#", 1))
        device.come()
        devices.append(device)
    while world.elapsed_s < QUIET_S - 5.0:
        await asyncio.sleep(rng.uniform(0.3, 2.0))
        device = rng.choice(devices)
        device.move(world.scenario.near(rng.choice(world.scenario.names)))


async def roam(world: World, rng: random.Random) -> None:
    """Clients that go where they are sent when they leave their broker's area."""
    device = world.device(Profile("r0", roams=True), "b0", world.scenario.near("b0"))
    device.subscribe(Wish("news/#", 2))
    device.subscribe(Wish("alarm/#", 1))
    device.come()
    while world.elapsed_s < HEALED_S:
        await asyncio.sleep(rng.uniform(2.0, 6.0))
        device.move(world.scenario.near(rng.choice(world.scenario.names)))


async def churn(world: World, rng: random.Random) -> None:
    """Wishes that come and go."""
    home = rng.choice(world.scenario.names)
    device = world.device(Profile("c0"), home, world.scenario.near(home))
    device.come()
    while world.elapsed_s < QUIET_S - 5.0:
        await asyncio.sleep(rng.uniform(0.2, 2.0))
        if device.wishes and rng.random() < 0.5:
            device.unsubscribe(rng.choice(list(device.wishes)))
        else:
            wish = world.scenario.wish()
            if wish.topic_filter not in device.wishes:
                device.subscribe(wish)


async def churn_plainly(world: World, rng: random.Random) -> None:
    """Short ways have to be found anew whenever who wants an event changes."""
    device = world.device(Profile("c1"), rng.choice(world.scenario.names), None)
    device.come()
    while world.elapsed_s < CLOSING_S - 1.0:
        await asyncio.sleep(rng.uniform(0.5, 3.0))
        topic_filter = f"{PLAIN}/{rng.choice('xyz')}"
        if topic_filter in device.wishes:
            device.unsubscribe(topic_filter)
        else:
            device.subscribe(Wish(topic_filter, rng.choice([0, 1, 2])))


async def share(world: World, rng: random.Random) -> None:
    """Share groups with members at several brokers, one of whom leaves."""
    for number in range(4):
        home = rng.choice(world.scenario.names)
        device = world.device(Profile(f"g{number}"), home, world.scenario.near(home))
        device.subscribe(Wish(SHARED[number % len(SHARED)], 2))
        device.come()
    await world.until(rng.uniform(TROUBLE_S + 2.0, HEALED_S - 1.0))
    device.unsubscribe(SHARED[1])
    await world.until(CLOSING_S)


async def retain(world: World, rng: random.Random) -> None:
    """A writer whose last word on a topic is what everybody must find in the end."""
    device = world.device(Profile("w0"), rng.choice(world.scenario.names), None)
    device.come()
    while world.elapsed_s < HEALED_S + 6.0:
        await asyncio.sleep(rng.uniform(0.3, 2.0))
        device.publish(f"ret/{rng.choice('abc')}", rng.choice([1, 2]), retain=True, empty=rng.random() < 0.15)


async def will(world: World, rng: random.Random) -> None:
    """Clients with a last will that lose their connections."""
    watcher = world.device(Profile("v1"), rng.choice(world.scenario.names), None)
    watcher.subscribe(Wish("will/#", 1))
    watcher.come()
    profile = Profile("v0", expiry_s=rng.choice([0, 600]), will_topic="will/x")
    device = world.device(profile, world.scenario.names[:2][-1], None)
    device.come()
    while world.elapsed_s < HEALED_S:
        await asyncio.sleep(rng.uniform(1.0, 6.0))
        if rng.random() < 0.5:
            device.leave()
            await asyncio.sleep(0.3)
            device.come()
        else:
            device.drop()
    await world.until(QUIET_S + 1.0)
    if device.link is not None:
        number, topic = device.link.number, "will/x"
        device.vanish()
        world.ledger.wills[f"will:{device.name}:{number}"] = (topic, world.loop.now)


async def expire(world: World, rng: random.Random) -> None:
    """Sessions and events with an end."""
    device = world.device(Profile("e0", expiry_s=10), rng.choice(world.scenario.names), None)
    writer = world.device(Profile("e1"), rng.choice(world.scenario.names), None)
    device.subscribe(Wish("news/#", 1))
    device.subscribe(Wish("short/#", 1))
    for each in (device, writer):
        each.come()
    while world.elapsed_s < HEALED_S:
        await asyncio.sleep(rng.uniform(1.0, 4.0))
        writer.publish("short/x", 1, expiry_s=rng.choice([1, 3]))
        if rng.random() < 0.4:
            device.vanish()
            await asyncio.sleep(rng.choice([1.0, 3.0, 17.0]))
            device.come()


async def read_slowly(world: World, rng: random.Random) -> None:
    """A client that takes nothing in for a while, again and again."""
    device = world.device(Profile("l0"), rng.choice(world.scenario.names), None)
    for topic_filter in ("news/#", "alarm/#", "load"):
        device.subscribe(Wish(topic_filter, rng.choice([1, 2])))
    device.come()
    writer = world.device(Profile("l1"), rng.choice(world.scenario.names), None)
    writer.come()
    while world.elapsed_s < HEALED_S:
        await asyncio.sleep(rng.uniform(1.0, 4.0))
        device.read_slowly(rng.uniform(0.5, 4.0))
        writer.publish(rng.choice(TOPICS[-1:]), 1, padding=20_000)


async def change(world: World, rng: random.Random) -> None:
    """The federation changes its strategy and its areas while events flow."""
    await world.until(TROUBLE_S + 1.0)
    while world.scenario.strategy != ALONE and world.elapsed_s < HEALED_S - 6.0:
        await asyncio.sleep(rng.uniform(3.0, 9.0))
        world.change_federation(rng)


HABITS: dict[str, Habit] = {
    "hop": hop,
    "take over": take_over,
    "move": move,
    "churn": churn,
    "share": share,
    "retain": retain,
    "will": will,
    "expire": expire,
    "roam": roam,
    "read slowly": read_slowly,
    "change": change,
    "plain": churn_plainly,
}
