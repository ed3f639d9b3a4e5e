"""First half of a decision: what the lease learns from an event. Older revisions than the newest are ignored."""

from dataclasses import replace
from typing import assert_never

from controlplane.lease import events
from controlplane.lease.state import Ask, Attempt, Key, Lease, Phase
from messages.ids import Epoch


def learn(lease: Lease, event: events.LeaseEvent) -> Lease:
    match event:
        case events.Ticked(_, pulse_s):
            return replace(lease, pulse_s=pulse_s)
        case events.KeySeen(at_s, revision, holder):
            return _see(lease, revision, holder, at_s)
        case events.KeyRead(at_s, number, revision, holder):
            if not _is_current(lease, number):
                return lease
            return _read(replace(lease, attempt=None, must_read=False), revision, holder, at_s)
        case events.KeyForgotten():
            return replace(lease, key=None, newest=0, must_read=True)
        case events.Written(at_s, number, revision):
            return _write(lease, number, revision, at_s)
        case events.Conflicted(_, number):
            return _fail(lease, number)
        case events.Unanswered(_, number, _):
            return _fail(lease, number)
        case events.BusLost():
            return replace(lease, connected=False)
        case events.BusBack():
            return replace(lease, connected=True, must_read=True, retry_s=None)
        case events.WorkEnded():
            return replace(lease, phase=Phase.STANDBY) if lease.phase is Phase.LOST else lease
        case _:
            assert_never(event)


def _see(lease: Lease, revision: int, holder: str | None, at_s: float) -> Lease:
    if revision <= lease.newest:
        return lease
    lease = replace(lease, key=Key(revision, holder, at_s), newest=revision)
    return replace(lease, revision=revision) if holder == lease.holder else lease


def _read(lease: Lease, revision: int, holder: str | None, at_s: float) -> Lease:
    """Learns a read. A missing key has revision 0; an existing one is at least as new as the newest seen."""
    if revision == 0:
        return replace(lease, key=Key(0, None, at_s))
    return _see(lease, revision, holder, at_s)


def _write(lease: Lease, number: int, revision: int, at_s: float) -> Lease:
    attempt = lease.attempt
    lease = _see(lease, revision, lease.holder, at_s)
    if attempt is None or attempt.number != number:
        return lease
    lease = replace(lease, attempt=None, retry_s=None, must_read=False)
    if lease.key is None or lease.key.holder != lease.holder:
        return lease
    match attempt.ask, lease.phase:
        case Ask.ACQUIRE, Phase.STANDBY:
            return _lead(lease, attempt, revision, at_s)
        case Ask.RENEW, Phase.LEADER:
            return replace(lease, renewed_s=attempt.sent_s)
        case _:
            return lease


def _lead(lease: Lease, attempt: Attempt, revision: int, at_s: float) -> Lease:
    """Begins to lead, unless the answer took so long that another master may hold the lease."""
    leading = replace(lease, phase=Phase.LEADER, epoch=Epoch(revision), renewed_s=attempt.sent_s)
    return leading if leading.may_act(at_s) else lease


def _fail(lease: Lease, number: int) -> Lease:
    return replace(lease, attempt=None, must_read=True) if _is_current(lease, number) else lease


def _is_current(lease: Lease, number: int) -> bool:
    return lease.attempt is not None and lease.attempt.number == number
