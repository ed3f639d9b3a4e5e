"""Plans are made in a thread of their own, one at a time over all jobs, so that nobody waits for the solver."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from controlplane.allocator.effects import MakePlan
from controlplane.planning.plan import Plan, plan
from runtime.logs import WhyLog, logger

T = TypeVar("T")

PLAN_S = 25.0
"""How long one is waited for, those before it included. A solver cannot be interrupted: what comes later is dropped."""


class Planner:
    def __init__(self, within_s: float = PLAN_S) -> None:
        self._within_s = within_s
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan")
        self._late = WhyLog(logger(), "plan_took_too_long")

    async def make(self, asked: MakePlan) -> Plan | None:
        """None if it took too long."""
        return await self.work(lambda: plan(asked.criteria, asked.profile, asked.market, asked.present))

    async def work(self, work: Callable[[], T]) -> T | None:
        try:
            async with asyncio.timeout(self._within_s):
                return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except TimeoutError:
            self._late(f"nothing came within {self._within_s:g} s")
            return None

    def close(self) -> None:
        """Those that wait are dropped; one that is being made ends by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)
