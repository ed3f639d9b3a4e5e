"""The reader of the fleet's quotas: it reads on request, after a refusal, and every few minutes. Rules: `quotas`."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from controlplane.allocator.offers import Offer, pool_plan
from controlplane.allocator.quota_room import is_limited
from controlplane.allocator.state import Allocator
from controlplane.capacity.quotas import (
    LIMITED_S,
    Allowance,
    Amounts,
    Refusals,
    allowances_of,
    is_due,
    left_of,
    used_by,
)
from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.interface import PROJECT, Cloud, Needs, PoolPlan, Quota, QuotaKey
from controlplane.clouds.outcomes import Refused, Unreachable
from controlplane.planning.market import Quotas
from messages.ids import JobName
from runtime.logs import WhyLog, logger
from runtime.waiting import first_of

PAUSE_S = 5.0
"""Minimum seconds between two reads."""
WAIT_S = 1.0
"""Seconds that a submission or a plan waits for a read."""
CALL_S = 20.0


class QuotaWatch:
    def __init__(
        self,
        cloud: Cloud,
        offers: Sequence[Offer],
        systems: Sequence[PoolPlan],
        allocators: Callable[[], dict[JobName, Allocator]],
        *,
        again_s: float = PAUSE_S,
        limited_s: float = LIMITED_S,
    ) -> None:
        """`systems`: the system pools of the clusters."""
        self.is_read = False
        """Set after the first read, even if it failed; quotas that cannot be read limit nothing."""
        self._cloud = cloud
        self._nodes = {offer.kind: pool_plan(JobName("any"), offer, 1) for offer in offers}
        self._systems = systems
        self._allocators = allocators
        self._again_s = again_s
        self._limited_s = limited_s
        self._known: dict[str, Sequence[Quota]] = {}
        self._needs: dict[MachineKind, Needs] = {}
        self._allowances: dict[QuotaKey, Allowance] = {}
        self._due = asyncio.Event()
        self._is_fresh = asyncio.Event()
        self._refusals = Refusals()
        self._unread = WhyLog(logger(), "quotas_not_seen")

    @property
    def is_outdated(self) -> bool:
        """True if a request was refused since the newest read. Its job then has newer numbers."""
        return self._refusals.is_outdated

    def refused(self) -> None:
        self._refusals = self._refusals.refused()
        self._due.set()

    def look(self) -> None:
        """Request a read without waiting for it."""
        self._due.set()

    async def refresh(self) -> None:
        """Request a read and wait briefly for it, unless the last read is only seconds old."""
        self._due.set()
        if self.is_read:
            await first_of(self._is_fresh, timeout_s=WAIT_S)

    def left_for(self, job: JobName) -> Quotas:
        others = (allocator for name, allocator in self._allocators().items() if name != job)
        return self._quotas(used_by(others, self._needs) if self._allowances else {})

    def left_at_best(self) -> Quotas:
        """Quotas for a job that does not exist yet, if the fleet's other jobs give back what they have."""
        return self._quotas({})

    async def run(self, on_read: Callable[[bool], Awaitable[None]]) -> None:
        """Run until cancelled. The argument of `on_read`: whether a request was refused since the previous read."""
        scopes = [*sorted({plan.kind.region for plan in (*self._nodes.values(), *self._systems)}), PROJECT]
        while True:
            self._due.clear()
            self._refusals = self._refusals.read_began()
            async with asyncio.TaskGroup() as tasks:
                for scope in scopes:
                    tasks.create_task(self._read(scope), name=f"quotas/{scope}")
            self._update_allowances()
            after_refusal = self._refusals.is_read_after_refusal
            self._refusals, self.is_read = self._refusals.read_ended(), True
            await on_read(after_refusal)
            self._is_fresh.set()
            await asyncio.sleep(self._again_s)
            self._is_fresh.clear()
            await self._until_due()

    async def _until_due(self) -> None:
        waited_s = 0.0
        while not is_due(
            waited_s,
            is_requested=self._due.is_set(),
            is_limited=any(map(is_limited, self._allocators().values())),
            limited_s=self._limited_s,
        ):
            await first_of(self._due, timeout_s=self._limited_s)
            waited_s += self._limited_s

    async def _read(self, scope: str) -> None:
        try:
            async with asyncio.timeout(CALL_S):
                found = await self._cloud.quotas(scope)
        except TimeoutError:
            found = Unreachable(f"no answer with the quotas of {scope} within {CALL_S:g} s")
        if isinstance(found, Unreachable | Refused):
            self._unread(found.detail)
            self._known.pop(scope, None)
        else:
            self._known[scope] = found

    def _update_allowances(self) -> None:
        known = [quota for quotas in self._known.values() for quota in quotas]
        self._needs = {choice: self._cloud.needs(plan, known) for choice, plan in self._nodes.items()}
        relevant = {key for needs in self._needs.values() for key in needs}
        reserved: dict[QuotaKey, int] = {}
        for plan in self._systems:
            for key, amount in self._cloud.needs(plan, known).items():
                reserved[key] = reserved.get(key, 0) + amount * plan.size
        ours = used_by(self._allocators().values(), self._needs)
        self._allowances = allowances_of((quota for quota in known if quota.key in relevant), ours, reserved)

    def _quotas(self, used: Amounts) -> Quotas:
        return Quotas(left_of(self._allowances, used), self._needs, self._cloud.quotas_page)
