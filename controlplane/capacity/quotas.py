"""What quotas leave for each job of the fleet, and when they are read again. Pure."""

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
"""Most seconds between two reads."""
LIMITED_S = 30.0
"""Seconds between two reads while a quota keeps a job from more nodes: a person may have raised it."""

Amounts = Mapping[QuotaKey, int]


class Allowance(NamedTuple):
    limit: int
    others: int
    """What is used and not by our jobs."""


def allowances_of(quotas: Iterable[Quota], ours: Amounts, reserved: Amounts) -> dict[QuotaKey, Allowance]:
    """`reserved`: what others of ours will need at least, whether they are there yet or not."""
    return {
        quota.key: Allowance(
            int(quota.limit), max(reserved.get(quota.key, 0), int(quota.usage) - ours.get(quota.key, 0))
        )
        for quota in quotas
    }


def left_of(allowances: Mapping[QuotaKey, Allowance], used: Amounts) -> dict[QuotaKey, int]:
    """For one job, beside what the others use."""
    return {key: max(0, each.limit - each.others - used.get(key, 0)) for key, each in allowances.items()}


def used_by(allocators: Iterable[Allocator], needs: Mapping[MachineKind, Needs]) -> dict[QuotaKey, int]:
    """What these jobs have, or may still get."""
    together: dict[QuotaKey, int] = {}
    for allocator in allocators:
        for key, amount in taken(Quotas(needs=needs), may_come(allocator, with_doomed=True)).items():
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
    """Requests that were refused for a quota, counted, and how many of them the reads have followed."""

    count: int = 0
    before_read: int = 0
    """Those before the newest read began."""
    answered: int = 0
    """Those before the newest read that has ended began."""

    @property
    def is_outdated(self) -> bool:
        """A request was refused since the newest read: the job that was refused knows better."""
        return self.count > self.answered

    @property
    def is_read_after_refusal(self) -> bool:
        """The read that is under way follows a refusal that no earlier one followed."""
        return self.before_read > self.answered

    def refused(self) -> "Refusals":
        return replace(self, count=self.count + 1)

    def read_began(self) -> "Refusals":
        return replace(self, before_read=self.count)

    def read_ended(self) -> "Refusals":
        return replace(self, answered=self.before_read)


def is_due(waited_s: float, *, is_requested: bool, is_limited: bool, limited_s: float = LIMITED_S) -> bool:
    """Whether quotas are read again, so long after the last read; `is_limited`: a quota keeps a job from more nodes."""
    return is_requested or waited_s >= EVERY_S or (is_limited and waited_s >= limited_s)
