"""What a testbed is to be, as frozen settings: brokers, links, the cloud, the clients' last hop, the workload.

The description of a key lives beside its type, as in a broker's config. Reading a file is `plan_load`'s business.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from geomq.broker.config.section import Name, Path, Section, about
from geomq.routing.trace.records import STEPS, Step
from geomq.testbed.emulated_link import Conditions

Milliseconds = Annotated[float, Meta(ge=0, le=60_000)]
Megabits = Annotated[float, Meta(ge=0, le=1e6)]
Share = Annotated[float, Meta(ge=0, le=0.9)]
Count = Annotated[int, Meta(ge=1, le=10_000_000)]


class Common(Section, frozen=True):
    """What all brokers share."""

    strategy: Annotated[Annotated[str, Meta(min_length=1, max_length=200)], about("Strategy of every broker.")] = (
        "disgb_events"
    )
    options: Annotated[dict[str, Any], about("Options of the strategy.")] = field(default_factory=dict)
    seed: Annotated[Annotated[int, Meta(ge=0, le=2**63 - 1)], about("Of the workload and of what links do.")] = 1
    durable: Annotated[bool, about("Whether brokers keep what they must on disk.")] = False
    trace: Annotated[tuple[Step, ...], about("Steps that brokers record.")] = STEPS
    ms_per_km: Annotated[
        Annotated[float, Meta(ge=0, le=10)],
        about("Latency of links by the distance of their brokers; the DisGB paper's is 0.021. 0 is none."),
    ] = 0.0
    settle_s: Annotated[
        Annotated[float, Meta(ge=0, le=600)], about("Seconds from linked brokers to the first client.")
    ] = 0.0


class Workload(Section, frozen=True):
    """What the clients do: a dataset, or a preset made on the spot."""

    dataset: Annotated[Path | None, about("Directory that `geomq workload` wrote.", path="read")] = None
    preset: Annotated[str | None, about("Name of a preset, such as hiking.")] = None
    clients: Annotated[Count | None, about("How many clients; the preset's own number when not given.")] = None
    seconds: Annotated[Annotated[float, Meta(gt=0, le=500_000)] | None, about("How long they act.")] = None
    speed: Annotated[Annotated[float, Meta(gt=0, le=1000)], about("How many times faster than it says.")] = 1.0
    processes: Annotated[Annotated[int, Meta(ge=1, le=64)], about("Processes of the replayer.")] = 2
    qos: Annotated[Literal[0, 1], about("QoS of events and subscriptions.")] = 0


class BrokerPlan(Section, frozen=True):
    """A broker of the workload; those without a table have an ordinary last hop."""

    name: Annotated[Name, about("Name of the broker, as the workload says.")]
    latency_ms: Annotated[Milliseconds, about("One way between this broker and each of its clients.")] = 0.0
    jitter_ms: Annotated[Milliseconds, about("Up to this much more, at random.")] = 0.0
    mbit_per_s: Annotated[Megabits, about("Bandwidth of each client, each way; 0 is any.")] = 0.0
    loss: Annotated[Share, about("Share of TCP segments that have to be sent again.")] = 0.0
    options: Annotated[dict[str, Any], about("Options of the strategy at this broker only.")] = field(
        default_factory=dict
    )


class Cloud(Section, frozen=True):
    """A Mosquitto as cloud of broadcast groups."""

    enabled: Annotated[bool, about("Start it.")] = False
    broker: Annotated[Name | None, about("The workload's broker that is the cloud; its clients use plain MQTT.")] = None


class Link(Section, frozen=True):
    """A link between two brokers, or between a broker and the cloud."""

    between: Annotated[Annotated[tuple[str, str], Meta(description="names")], about("The two; `cloud` is the cloud.")]
    latency_ms: Annotated[Milliseconds, about("One way.")] = 0.0
    jitter_ms: Annotated[Milliseconds, about("Up to this much more, at random.")] = 0.0
    mbit_per_s: Annotated[Megabits, about("Bandwidth each way; 0 is any.")] = 0.0
    loss: Annotated[Share, about("Share of TCP segments that have to be sent again.")] = 0.0


class TestbedPlan(Section, frozen=True):
    """A whole testbed."""

    testbed: Common = field(default_factory=Common)
    workload: Workload = Workload()
    brokers: tuple[BrokerPlan, ...] = ()
    cloud: Cloud = Cloud()
    links: tuple[Link, ...] = ()


CLOUD = "cloud"


def conditions_of(section: BrokerPlan | Link) -> Conditions:
    """How a link or a last hop behaves."""
    return Conditions(section.latency_ms, section.jitter_ms, section.mbit_per_s, section.loss)
