"""The thread that makes the plans of all jobs one after another. The event loop does not wait for the solver."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from controlplane.allocator.effects import MakePlan
from controlplane.planning.plan import Plan, plan
from runtime.logs import WhyLog, logger

T = TypeVar("T")

PLAN_S = 25.0
"""Seconds to wait for a plan and the plans before it. The solver cannot be interrupted; a late plan is dropped."""


class Planner:
    def __init__(self, within_s: float = PLAN_S) -> None:
        self._within_s = within_s
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan")
        self._late = WhyLog(logger(), "plan_took_too_long")

    async def make(self, asked: MakePlan) -> Plan | None:
        """Make a plan; None if it took too long."""
        return await self.work(lambda: plan(asked.criteria, asked.profile, asked.market, asked.current))

    async def work(self, work: Callable[[], T]) -> T | None:
        try:
            async with asyncio.timeout(self._within_s):
                return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except TimeoutError:
            self._late(f"no result within {self._within_s:g} s")
            return None

    def close(self) -> None:
        """Drop waiting plans. A plan that is being made ends by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)
