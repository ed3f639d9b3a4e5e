"""What must hold after every decision of a lease core."""

from collections.abc import Sequence

from controlplane.lease.effects import Lead, LeaseEffect, ReadKey, StepDown, WriteKey
from controlplane.lease.state import Lease, Phase


def check(before: Lease, after: Lease, effects: Sequence[LeaseEffect], now_s: float) -> list[str]:
    broken = []
    if after.phase is Phase.LEADER and not after.may_act(now_s):
        broken.append("leads although its lease may have expired")
    if (after.phase is Phase.LEADER) != (after.epoch is not None):
        broken.append("leads without an epoch, or has one without leading")
    if after.phase is Phase.LEADER and after.key is not None and after.key.holder != after.holder:
        broken.append("leads although another master is known to hold the lease")
    leads = [effect for effect in effects if isinstance(effect, Lead)]
    if (before.phase is not Phase.LEADER and after.phase is Phase.LEADER) != (len(leads) == 1 and not _fell(effects)):
        broken.append("begins to lead without exactly one Lead")
    if before.phase is Phase.LEADER and after.phase is not Phase.LEADER and not _fell(effects):
        broken.append("stops leading without a StepDown")
    if before.phase is Phase.LOST and after.phase is Phase.LEADER:
        broken.append("leads again without having been a standby")
    if sum(isinstance(effect, ReadKey | WriteKey) for effect in effects) > 1:
        broken.append("two attempts at once")
    if after.is_stuck(now_s) and any(isinstance(effect, WriteKey) for effect in effects):
        broken.append("writes the lease although its main loop is stuck")
    return broken


def _fell(effects: Sequence[LeaseEffect]) -> bool:
    return any(isinstance(effect, StepDown) for effect in effects)
