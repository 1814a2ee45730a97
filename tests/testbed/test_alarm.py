"""Callbacks at exact times."""

import asyncio
import time

from geomq.testbed.alarm import Alarm


def test_callbacks_come_in_the_order_of_their_times_and_never_early() -> None:
    async def ring() -> list[tuple[int, float]]:
        loop = asyncio.get_running_loop()
        alarm, rung, done = Alarm(loop), [], loop.create_future()
        start = time.monotonic()
        for number, after_ms in enumerate((3.0, 1.5, 1.5, 0.0)):
            at_s = start + after_ms / 1000
            alarm.set(at_s, lambda number=number, at_s=at_s: rung.append((number, time.monotonic() - at_s)))  # type: ignore[misc]
        alarm.set(start + 0.01, lambda: done.set_result(None))
        await asyncio.wait_for(done, 30)
        alarm.close()
        return rung

    rung = asyncio.run(ring())
    assert [number for number, _ in rung] == [3, 1, 2, 0]
    assert all(late_s >= 0 for _, late_s in rung)


def test_a_closed_alarm_rings_no_more() -> None:
    async def ring() -> list[int]:
        alarm, rung = Alarm(asyncio.get_running_loop()), []
        alarm.set(time.monotonic() + 0.01, lambda: rung.append(1))
        alarm.close()
        await asyncio.sleep(0.05)
        return rung

    assert asyncio.run(ring()) == []
