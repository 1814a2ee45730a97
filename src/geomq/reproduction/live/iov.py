"""The Internet-of-Vehicles experiment of the broadcast groups paper as a workload.

Cars at two edge brokers send each other what they do, twenty times a second; monitoring equipment at a third reports to
the traffic authority, which listens at the cloud itself. Owns who sends what, how often and where. Places mean
nothing here: groups form by latency.
"""

from pathlib import Path

import numpy as np

from geomq.workload.cities import Place
from geomq.workload.dataset import write_frame, write_manifest, write_part
from geomq.workload.files import new_directory
from geomq.workload.model import NO_FENCE, ActionList, Kind
from geomq.workload.traffic.script import RecordedSpec, recorded
from geomq.workload.world import World

EDGES = ("edge-1", "edge-2", "edge-3")
CLOUD_BROKER = "cloud-broker"
MONITOR, CAR_1, CAR_2, CAR_3, AUTHORITY = range(5)
CARS = (CAR_1, CAR_2, CAR_3)
HOMES = (0, 1, 2, 2, 3)
TELEMETRY, MONITORING = "/car-telemetry", "/traffic-control"
TOPICS = (
    f"{TELEMETRY}/realtime/1",
    f"{TELEMETRY}/realtime/2",
    f"{TELEMETRY}/realtime/3",
    f"{MONITORING}/monitoring/1",
    f"{TELEMETRY}/realtime/+",
    f"{MONITORING}/monitoring/#",
)
WARM_UP_MS = 2000
TELEMETRY_MS, TELEMETRY_BYTES = 50, 20
MONITORING_MS, MONITORING_BYTES = 1000, 1000


def iov_world() -> World:
    """Three edge brokers and the cloud, somewhere."""
    places = [Place(name, 50.0, 8.0 + 12 * number, 1) for number, name in enumerate((*EDGES, CLOUD_BROKER))]
    return World.of_places(places)


def iov_spec(seconds: int) -> RecordedSpec:
    """Everything everybody does; cars are out of step by a third of their period."""
    actions = ActionList()

    def subscribe(client: int, topic: int) -> None:
        nowhere = np.zeros(1, np.int32)
        actions.add(
            Kind.SUBSCRIPTION, np.zeros(1, np.int64), np.full(1, client, np.int32), nowhere, nowhere, topic=topic
        )

    def publish(client: int, topic: int, first_ms: int, every_ms: int, size: int) -> None:
        t_ms = np.arange(WARM_UP_MS + first_ms, WARM_UP_MS + seconds * 1000, every_ms, dtype=np.int64)
        who, nowhere = np.full(len(t_ms), client, np.int32), np.zeros(len(t_ms), np.int32)
        how = {"topic": topic, "radius_cm": NO_FENCE, "payload_bytes": size}
        actions.add(Kind.EVENT, t_ms, who, nowhere, nowhere, **how)

    for number, car in enumerate(CARS):
        subscribe(car, 4)
        publish(car, number, number * TELEMETRY_MS // 3, TELEMETRY_MS, TELEMETRY_BYTES)
    subscribe(AUTHORITY, 5)
    publish(MONITOR, 3, 7, MONITORING_MS, MONITORING_BYTES)
    return recorded(list(TOPICS), np.array(HOMES, np.int32), actions.before(2**31 - 1))


def write_iov(directory: Path, seconds: int) -> None:
    """The workload as a dataset."""
    world, spec = iov_world(), iov_spec(seconds)
    with new_directory(directory) as target:
        actions = write_part(target, 0, [spec.block(world, 0, 0)])
        write_frame(target, world, spec)
        facts = {"preset": "iov", "seed": 0, "field_deg": world.field_deg, "seconds": spec.end_ms / 1000}
        write_manifest(target, {"kind": "workload", **facts, "clients": len(HOMES), "actions": actions, "parts": 1})
