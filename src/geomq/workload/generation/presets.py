"""Presets by name, and sweeps over their numbers.

Owns the way from what a user types to worlds and recipes. Refuses unknown names and empty sweeps.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from geomq.errors import UsageError
from geomq.workload.cities import PUBLISHED, read_places
from geomq.workload.dataset import DatasetSpec
from geomq.workload.evaluation.results import Run
from geomq.workload.generation.disgb import DisgbSpec
from geomq.workload.generation.scenarios import SCENARIOS, scenario_world
from geomq.workload.model import Spec
from geomq.workload.world import World

PRESETS = ("paper", "steady", *SCENARIOS)
SWEEP_MAX = 64
_SWEPT = {
    "clients": "clients",
    "brokers": "brokers",
    "topics": "topics",
    "seconds": "seconds",
    "fence": "event_fence_deg",
    "event-fence": "event_fence_deg",
    "subscription-fence": "subscription_fence_deg",
    "seed": "seed",
}


@dataclass(frozen=True, slots=True)
class Request:
    """What to generate or evaluate. None means the preset's own number."""

    preset: str = "paper"
    variant: str = "default"
    brokers: int | None = None
    clients: int | None = None
    topics: int | None = None
    seconds: int | None = None
    event_fence_deg: float | None = None
    subscription_fence_deg: float | None = None
    field_deg: int | None = None
    places: Path | None = None
    cities: bool = False
    seed: int = 1

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise UsageError(f"unknown preset {self.preset!r}; choose from {', '.join(PRESETS)}")
        if not 0 <= self.seed < 2**63:
            raise UsageError("the seed must be between 0 and 2**63 - 1")


def build(request: Request) -> tuple[World, Spec]:
    """The world and the recipe of a request."""
    if request.preset in SCENARIOS:
        return _build_scenario(request)
    spec = DisgbSpec(growing_pauses=request.preset == "paper")
    names = ("clients", "topics", "seconds", "event_fence_deg", "subscription_fence_deg")
    given = {name: getattr(request, name) for name in names if getattr(request, name) is not None}
    return build_world(request), replace(spec, **given)


def build_world(request: Request) -> World:
    """Places from a file, the published 25, or large cities."""
    if request.places is not None:
        places = read_places(request.places)
        if request.brokers is not None and request.brokers > len(places):
            raise UsageError(f"{request.places} names {len(places)} brokers, not {request.brokers}")
        return World.of_places(places[: request.brokers], request.field_deg)
    count = len(PUBLISHED) if request.brokers is None else request.brokers
    if count == len(PUBLISHED) and not request.cities:
        return World.published() if request.field_deg is None else World.of_places(PUBLISHED, request.field_deg)
    return World.of_cities(count, seed=request.seed, field_deg=request.field_deg)


def _build_scenario(request: Request) -> tuple[World, Spec]:
    for name in ("topics", "event_fence_deg", "subscription_fence_deg", "field_deg", "places"):
        if getattr(request, name) is not None:
            raise UsageError(f"the preset {request.preset} has its own {name.replace('_', ' ')}")
    if request.brokers not in (None, len(scenario_world())) or request.cities:
        raise UsageError(f"the preset {request.preset} is about its own {len(scenario_world())} brokers")
    given = {name: getattr(request, name) for name in ("clients", "seconds") if getattr(request, name) is not None}
    return scenario_world(), replace(SCENARIOS[request.preset], **given)


def describe(request: Request, world: World, spec: Spec, number: int) -> Run:
    """What a result says about its run."""
    fences: tuple[float | None, float | None] = (None, None)
    if isinstance(spec, DisgbSpec):
        fences = (spec.event_fence_deg, spec.subscription_fence_deg)
    preset = str(spec.directory) if isinstance(spec, DatasetSpec) else request.preset
    clients = int(spec.homes(world).sum())
    topics, seconds = len(spec.topic_names()), spec.end_ms // 1000
    return Run(number, preset, request.variant, len(world), clients, topics, seconds, *fences, request.seed)


def sweep(request: Request, terms: Iterable[str]) -> list[Request]:
    """Requests for all combinations of `name=a,b,c` terms."""
    axes: dict[str, list[float]] = {}
    for term in terms:
        name, _, values = term.partition("=")
        if name not in _SWEPT or not values:
            raise UsageError(
                f"a sweep is name=value,value with a name from {', '.join(_SWEPT)}; {term!r} does not have that form"
            )
        axes[_SWEPT[name]] = [_number(name, value) for value in values.split(",")]
    combinations = list(itertools.product(*axes.values()))
    if len(combinations) > SWEEP_MAX:
        raise UsageError(f"that sweep has {len(combinations)} runs; at most {SWEEP_MAX} are allowed")
    return [replace(request, **dict(zip(axes, values, strict=True))) for values in combinations]  # type: ignore[arg-type]


def _number(name: str, text: str) -> float:
    try:
        return float(text) if name.endswith("fence") else int(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a number for {name}") from None
