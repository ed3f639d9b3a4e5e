"""The entry of the lease core: learn from the event, then reconcile.

Two masters never act at once, because the key changes only by compare-and-set. A leader counts from the time at which
it *sent* its newest answered write, and stops `margin_s` before that write can expire. Other masters write only over a
key that is gone, or that they saw unchanged for longer than its time to live.

The lease has its own thread, which would renew it even if the main loop, where the leader's work runs, were stuck. So a
process whose main loop has shown no pulse for `stuck_after_s` writes nothing.
"""

from dataclasses import replace

from controlplane.lease.effects import Lead, LeaseEffect, ReadKey, StepDown, WriteKey
from controlplane.lease.events import LeaseEvent
from controlplane.lease.learn import learn
from controlplane.lease.state import Ask, Attempt, Key, Lease, Phase
from messages.ids import Epoch
from runtime.decision import Decision

ABANDON_S = 1.0
"""Seconds after the time limit of an attempt before an attempt without an answer is forgotten."""


EXPIRED = "the lease expired or was deleted"
STUCK = "the main loop is stuck"
NOT_ACQUIRED = f"does not acquire the lease: {STUCK}"


def leads_in(epoch: Epoch | None) -> str:
    return f"leads in epoch {epoch}"


def other_holds(holder: str) -> str:
    return f"{holder} holds the lease"


def stuck_for(seconds: float) -> str:
    return f"the main loop has been stuck for {seconds:.1f} s"


def not_renewed_for(seconds: float) -> str:
    return f"the lease could not be renewed for {seconds:.1f} s"


def decide(lease: Lease, event: LeaseEvent) -> Decision[Lease, LeaseEffect]:
    now_s = event.at_s
    effects: list[LeaseEffect] = []
    after = _forget_attempt(learn(lease, event), now_s)
    if after.phase is Phase.LEADER and lease.phase is not Phase.LEADER and after.epoch is not None:
        effects.append(Lead(after.epoch))
    lost_why = why_lost(after, now_s)
    if lost_why is not None:
        after = replace(after, phase=Phase.LOST, epoch=None, why=lost_why)
        effects.append(StepDown(lost_why))
    after, asked = _ask(after, now_s)
    return Decision(after, (*effects, *asked), after.why, _wake_at_s(after, now_s))


def why_lost(lease: Lease, now_s: float) -> str | None:
    if lease.phase is not Phase.LEADER:
        return None
    key = lease.key
    if key is not None and key.holder != lease.holder:
        return other_holds(key.holder) if key.holder is not None else EXPIRED
    if now_s >= lease.held_until_s:
        if lease.is_stuck(lease.held_until_s):
            return stuck_for(now_s - lease.pulse_s)
        return not_renewed_for(now_s - lease.renewed_s)
    return None


def _ask(lease: Lease, now_s: float) -> tuple[Lease, list[LeaseEffect]]:
    ask = _next_ask(lease, now_s)
    return _attempt(lease, ask, now_s) if ask is not None else (replace(lease, why=_why(lease, now_s)), [])


def _next_ask(lease: Lease, now_s: float) -> Ask | None:
    """The next attempt if it is due; at most one at a time. Only reads need pauses: each write follows a read."""
    if lease.attempt is not None or not lease.connected or lease.phase is Phase.LOST:
        return None
    key, settings = lease.key, lease.settings
    read = Ask.READ if lease.retry_s is None or now_s >= lease.retry_s else None
    if key is None or lease.must_read:
        return read
    may_write = not lease.is_stuck(now_s)
    if lease.phase is Phase.LEADER:
        return Ask.RENEW if may_write and now_s >= lease.renewed_s + settings.renew_every_s else None
    if is_free(lease, key, now_s):
        return Ask.ACQUIRE if may_write else None
    return read if now_s >= key.since_s + settings.ttl_s else None


def is_free(lease: Lease, key: Key, now_s: float) -> bool:
    """True if the key has no holder, or this process by a write whose answer was lost, or one that is overdue."""
    return key.holder in (None, lease.holder) or now_s >= key.since_s + lease.settings.overdue_s


def _attempt(lease: Lease, ask: Ask, now_s: float) -> tuple[Lease, list[LeaseEffect]]:
    number = lease.attempts + 1
    asked = replace(lease, attempts=number, attempt=Attempt(number, ask, now_s), retry_s=now_s + lease.settings.retry_s)
    asked = replace(asked, why=_why(asked, now_s))
    if ask is Ask.READ or lease.key is None:
        return asked, [ReadKey(number)]
    return asked, [WriteKey(number, lease.revision if ask is Ask.RENEW else lease.key.revision)]


def _forget_attempt(lease: Lease, now_s: float) -> Lease:
    attempt = lease.attempt
    if attempt is None or now_s < _abandoned_s(lease, attempt):
        return lease
    return replace(lease, attempt=None, must_read=True)


def _abandoned_s(lease: Lease, attempt: Attempt) -> float:
    return attempt.sent_s + lease.settings.answer_s + ABANDON_S


def _why(lease: Lease, now_s: float) -> str:
    match lease.phase:
        case Phase.LEADER:
            stuck = f", but does not renew: {STUCK}" if lease.is_stuck(now_s) else ""
            return leads_in(lease.epoch) + stuck
        case Phase.LOST:
            return lease.why
        case Phase.STANDBY:
            if not lease.connected:
                return "the bus is unreachable"
            if lease.key is None:
                return "reading the lease"
            if lease.is_stuck(now_s):
                return NOT_ACQUIRED
            return f"{lease.key.holder} leads" if lease.key.holder is not None else "no master leads"


def _wake_at_s(lease: Lease, now_s: float) -> float | None:
    if lease.phase is Phase.LOST:
        return None
    times = [_abandoned_s(lease, lease.attempt)] if lease.attempt is not None else []
    if lease.phase is Phase.LEADER:
        times += [lease.held_until_s, lease.renewed_s + lease.settings.renew_every_s]
    elif lease.key is not None:
        times += [lease.key.since_s + lease.settings.ttl_s, lease.key.since_s + lease.settings.overdue_s]
    if lease.retry_s is not None:
        times.append(lease.retry_s)
    next_s = min((at_s for at_s in times if at_s > now_s), default=now_s + lease.settings.renew_every_s)
    return min(next_s, _pulse_due_s(lease, now_s))


def _pulse_due_s(lease: Lease, now_s: float) -> float:
    """When to check the pulse at the latest: each tick carries the newest one."""
    settings = lease.settings
    return now_s + settings.retry_s if lease.is_stuck(now_s) else lease.pulse_s + settings.stuck_after_s
