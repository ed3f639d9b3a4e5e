"""Rules for quotas: what they leave for each job of the fleet, and when they are read again. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from controlplane.allocator.quota_room import may_come
from controlplane.allocator.state import Allocator
from controlplane.catalog.kinds import MachineKind
from controlplane.clouds.interface import Needs, Quota, QuotaKey
from controlplane.planning.market import Quotas
from controlplane.planning.quotas import taken
from messages.offers import NeedView, QuotaView

EVERY_S = 300.0
"""Maximum seconds between two reads."""
LIMITED_S = 30.0
"""Seconds between two reads while a quota limits a job. A person may raise the quota."""

Amounts = Mapping[QuotaKey, int]


class Allowance(NamedTuple):
    limit: int
    others: int
    """The amount that is not available to the fleet's jobs."""


def allowances_of(quotas: Iterable[Quota], ours: Amounts, reserved: Amounts) -> dict[QuotaKey, Allowance]:
    """The allowance of each quota. `reserved`: what the fleet's system pools need, even before they exist."""
    return {
        quota.key: Allowance(
            int(quota.limit), max(reserved.get(quota.key, 0), int(quota.usage) - ours.get(quota.key, 0))
        )
        for quota in quotas
    }


def left_of(allowances: Mapping[QuotaKey, Allowance], used: Amounts) -> dict[QuotaKey, int]:
    """The amount of each quota that is left for one job; `used`: what other jobs use."""
    return {key: max(0, each.limit - each.others - used.get(key, 0)) for key, each in allowances.items()}


def used_by(allocators: Iterable[Allocator], needs: Mapping[MachineKind, Needs]) -> dict[QuotaKey, int]:
    """The amounts that these jobs have or may still get."""
    together: dict[QuotaKey, int] = {}
    for allocator in allocators:
        for key, amount in taken(Quotas(needs=needs), may_come(allocator, with_noticed=True)).items():
            together[key] = together.get(key, 0) + amount
    return together


def quota_views(quotas: Quotas) -> tuple[QuotaView, ...]:
    needs: dict[QuotaKey, list[NeedView]] = {}
    for choice, each in quotas.needs.items():
        for key, amount in each.items():
            needs.setdefault(key, []).append(
                NeedView(choice.zone, choice.machine_type, choice.accelerator, choice.spot, amount)
            )
    return tuple(QuotaView(*key, left, tuple(needs.get(key, ()))) for key, left in quotas.left.items())


@dataclass(frozen=True, slots=True)
class Refusals:
    """Counts of requests that a quota refused, and of those that a read has followed."""

    count: int = 0
    before_read: int = 0
    """Refusals before the start of the newest read."""
    answered: int = 0
    """Refusals before the start of the newest completed read."""

    @property
    def is_outdated(self) -> bool:
        """True if a request was refused since the newest completed read began."""
        return self.count > self.answered

    @property
    def is_read_after_refusal(self) -> bool:
        """True if the current read is the first one after a refusal."""
        return self.before_read > self.answered

    def refused(self) -> "Refusals":
        return replace(self, count=self.count + 1)

    def read_began(self) -> "Refusals":
        return replace(self, before_read=self.count)

    def read_ended(self) -> "Refusals":
        return replace(self, answered=self.before_read)


def is_due(waited_s: float, *, is_requested: bool, is_limited: bool, limited_s: float = LIMITED_S) -> bool:
    """Check whether to read quotas `waited_s` after the last read; `is_limited`: a quota limits a job."""
    return is_requested or waited_s >= EVERY_S or (is_limited and waited_s >= limited_s)
