"""What all loads share in one run: the brokers, started once and kept, how long and how often to measure."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from typing import Self

from bench.brokers import Amqtt, Broker, GeoMQ, Mosquitto, Relay
from bench.measure import BenchError, Figure, cpu_s

KINDS: dict[str, type[Broker]] = {kind.name: kind for kind in (GeoMQ, Mosquitto, Amqtt, Relay)}


class Stage(AbstractContextManager["Stage"]):
    """The brokers of one run by name. `say` is told what is being measured."""

    def __init__(
        self,
        names: Iterable[str],
        *,
        core: int | None,
        load_core: int | None = None,
        quick: bool,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.names = tuple(names)
        self.core = core
        self.load_core = load_core
        self.quick = quick
        self.say = say
        self.repeats = 3 if quick else 5
        self.seconds = 0.15 if quick else 0.6
        self._running: dict[str, Broker] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def brokers(self) -> tuple[str, ...]:
        """Those that speak MQTT."""
        return tuple(name for name in self.names if name != Relay.name)

    def broker(self, name: str) -> Broker:
        """The one that runs for the whole time."""
        if name not in self._running:
            self._running[name] = self._stack.enter_context(self.fresh(name))
        return self._running[name]

    def fresh(self, name: str) -> Broker:
        """Another one, to be used as a context, for loads that leave traces."""
        if name not in self.names:
            raise BenchError(f"{name} is not among the brokers of this run")
        return KINDS[name](self.core)

    def among(self, *names: str) -> tuple[str, ...]:
        """Those of the brokers that are there."""
        return tuple(name for name in names if name in self.names)


def cpu_us_each(pid: int, work: Callable[[], int]) -> float:
    """CPU microseconds of the process per unit of work done."""
    before = cpu_s(pid)
    done = work()
    return (cpu_s(pid) - before) * 1e6 / done


def interleaved(runs: dict[str, Callable[[], float]], repeats: int) -> dict[str, Figure]:
    """Measure each in turn, again and again, so that a drift of the machine meets all alike."""
    values: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            values[name].append(run())
    return {name: Figure.of(found) for name, found in values.items()}
