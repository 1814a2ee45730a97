"""Who waits for whom when passwords are checked."""

import asyncio
from collections.abc import Callable

import pytest
from tests.broker.gated_threads import GatedThreads

from geomq.broker.connections.password_checks import WAITING_MAX, WAITING_PER_ADDRESS_MAX, PasswordChecks
from geomq.broker.platform import Platform

pytestmark = pytest.mark.anyio


class _Core:
    """As much of a broker as checks need."""

    def __init__(self, threads: GatedThreads, processors: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.platform = Platform(start_workers=lambda _name, _threads: threads, processors=processors)


class _Desk:
    """Asks for checks and notes the answers."""

    def __init__(self, processors: int = 1) -> None:
        self.threads = GatedThreads()
        self.checks = PasswordChecks(_Core(self.threads, processors))  # type: ignore[arg-type]
        self.answered: list[str] = []

    def ask(self, asker: str, address: str) -> bool:
        return self.checks.ask(asker, address, lambda: True, self._then(asker))

    def _then(self, asker: str) -> Callable[[bool], object]:
        return lambda _good: self.answered.append(asker)

    async def run(self, times: int) -> list[str]:
        for _ in range(times):
            self.threads.run_next()
            await asyncio.sleep(0)
        return self.answered


async def test_addresses_take_turns_however_many_one_of_them_asks_for() -> None:
    desk = _Desk()
    for number in range(50):
        assert desk.ask(f"loud {number}", "10.0.0.1")
    for number in range(2):
        assert desk.ask(f"calm {number}", "10.0.0.2")
    assert await desk.run(5) == ["loud 0", "loud 1", "calm 0", "loud 2", "calm 1"]


async def test_an_address_may_have_so_many_waiting_and_all_together_so_many() -> None:
    desk = _Desk()
    taken = [desk.ask(f"a {number}", "10.0.0.1") for number in range(2 * WAITING_PER_ADDRESS_MAX)]
    assert sum(taken) == WAITING_PER_ADDRESS_MAX + 1  # one is under way
    assert desk.ask("b", "10.0.0.2")
    assert not desk.ask("c", "::ffff:10.0.0.1")
    for number in range(2 * WAITING_MAX):
        desk.ask(f"{number}", f"10.1.{number // 256}.{number % 256}")
    assert not desk.ask("one too many", "10.0.0.3")
    assert desk.checks._count == WAITING_MAX


async def test_who_leaves_is_not_checked_and_makes_room() -> None:
    desk = _Desk()
    for number in range(WAITING_PER_ADDRESS_MAX + 1):
        assert desk.ask(f"{number}", "10.0.0.1")
    for number in range(WAITING_PER_ADDRESS_MAX):
        desk.checks.cancel(f"{number}", "10.0.0.1")
    assert desk.ask("new", "10.0.0.1")
    assert await desk.run(3) == ["0", str(WAITING_PER_ADDRESS_MAX), "new"]
    assert not desk.threads.given


async def test_so_many_checks_run_side_by_side_as_there_are_processors_to_spare() -> None:
    for processors, at_once in ((1, 1), (2, 1), (3, 2), (64, 4)):
        desk = _Desk(processors)
        for number in range(10):
            desk.ask(f"{number}", "10.0.0.1")
        assert len(desk.threads.given) == at_once
