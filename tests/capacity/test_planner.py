"""Plans are made beside the loop, one at a time."""

import asyncio
import threading

from controlplane.allocator.effects import MakePlan
from controlplane.capacity.planner import Planner
from controlplane.planning.market import CurrentCapacity
from controlplane.planning.plan import Change
from tests.planning.builders import IOWA_A, a_choice, a_market, a_small_profile, an_option, some_criteria


async def test_a_plan_is_made_of_what_was_asked() -> None:
    planner = Planner()
    market = a_market(an_option(IOWA_A))
    made = await planner.make(MakePlan(1, some_criteria(max_workers=2), a_small_profile(), market, CurrentCapacity()))
    planner.close()
    assert made is not None
    assert (made.change, made.placement) == (Change.BEGIN, {a_choice(IOWA_A): sum(made.placement.values())})


async def test_two_are_made_one_after_the_other_and_the_loop_continues_meanwhile() -> None:
    planner, at_work, most = Planner(), 0, 0
    continue_run = threading.Event()

    def work() -> int:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        continue_run.wait(10.0)
        at_work -= 1
        return threading.get_ident()

    async with asyncio.TaskGroup() as tasks:
        both = [tasks.create_task(planner.work(work)) for _ in range(2)]
        await asyncio.sleep(0.02)
        continue_run.set()
    planner.close()
    assert most == 1
    assert {each.result() for each in both} != {threading.get_ident()}


async def test_one_that_takes_too_long_is_not_waited_for() -> None:
    planner, continue_run = Planner(within_s=0.01), threading.Event()
    assert await planner.work(lambda: continue_run.wait(10.0)) is None
    continue_run.set()
    planner.close()


async def test_at_the_end_those_that_wait_are_dropped() -> None:
    planner, continue_run, done = Planner(), threading.Event(), list[int]()
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(planner.work(lambda: continue_run.wait(10.0)))]
        waiting.append(tasks.create_task(planner.work(lambda: done.append(1))))
        await asyncio.sleep(0.02)
        planner.close()
        continue_run.set()
    assert waiting[1].cancelled()
    assert done == []
