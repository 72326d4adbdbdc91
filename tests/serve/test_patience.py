from __future__ import annotations

import asyncio

from bitedge.serve.patience import Patience


def test_those_who_take_too_long_are_cancelled_and_the_others_are_not() -> None:
    async def wait(patience: Patience, event: asyncio.Event) -> str:
        task = patience.begin()
        try:
            await event.wait()
            return "in time"
        except asyncio.CancelledError:
            assert task.uncancel() == 0
            return "late" if patience.is_late(task) else "cancelled"
        finally:
            patience.end(task)

    async def main() -> list[str]:
        patience = Patience(0.05)
        patience.start()
        events = [asyncio.Event() for _ in range(4)]
        tasks = [asyncio.create_task(wait(patience, event)) for event in events]
        await asyncio.sleep(0)
        events[1].set()
        tasks[2].cancel()
        results = [await asyncio.wait_for(task, 30) for task in tasks]
        again = asyncio.create_task(wait(patience, asyncio.Event()))  # the timer is set again after it ran out
        return [*results, await asyncio.wait_for(again, 30)]

    assert asyncio.run(main()) == ["late", "in time", "cancelled", "late", "late"]
