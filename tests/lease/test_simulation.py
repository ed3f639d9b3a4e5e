"""300 seeds of masters with different clocks, pauses and a bad network; and planted bugs."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from controlplane.lease import decide as core
from controlplane.lease import learn
from controlplane.lease.events import LeaseEvent, Ticked
from controlplane.lease.state import Ask, Attempt, Key, Lease, Phase
from messages.ids import Epoch
from tests.lease.simulation import simulate

SEEDS = 300

EVERY_FAULT = {
    "request lost",
    "answer lost",
    "sight lost",
    "message late",
    "master paused",
    "leader paused",
    "main loop stuck",
    "leader's main loop stuck",
    "paused while it writes",
    "master crashed",
    "master deaf",
    "master cut off",
    "bus away",
}


def test_never_two_act_at_once_and_one_leads_soon_after_another_fell_silent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    faults: Counter[str] = Counter()
    broken = []
    leaders = 0
    for seed in range(SEEDS):
        result = simulate(seed)
        faults += result.faults
        leaders += len(result.epochs)
        if result.broken is not None:
            broken.append(f"seed {seed}: {result.broken}")
    with capsys.disabled():
        made = ", ".join(f"{n} × {kind}" for kind, n in faults.most_common())
        print(f"\n{SEEDS} seeds, {leaders} leaders; faults made: {made}")
    assert not broken, "\n".join(broken)
    assert faults.keys() == EVERY_FAULT


def test_the_same_seed_tells_the_same_story() -> None:
    assert simulate(11).story == simulate(11).story


def _count_from_the_answer(patch: pytest.MonkeyPatch) -> None:
    """Bug: a renewal counts from its answer, not from its request."""
    honest = learn._write

    def late(lease: Lease, number: int, revision: int, at_s: float) -> Lease:
        attempt = lease.attempt
        if attempt is not None and attempt.number == number:
            lease = replace(lease, attempt=replace(attempt, sent_s=at_s))
        return honest(lease, number, revision, at_s)

    patch.setattr(learn, "_write", late)


def _lead_until_told_otherwise(patch: pytest.MonkeyPatch) -> None:
    """Bug: a leader stops only when it sees another holder."""
    patch.setattr(Lease, "held_until_s", property(lambda lease: float("inf")))


def _take_no_answer_for_a_yes(patch: pytest.MonkeyPatch) -> None:
    """Bug: an acquisition without an answer counts as successful."""
    honest = learn._fail

    def bold(lease: Lease, number: int) -> Lease:
        attempt = lease.attempt
        if attempt is not None and attempt.ask == "acquire" and lease.phase is Phase.STANDBY and lease.key is not None:
            epoch = lease.newest + 1
            key = Key(epoch, lease.holder, lease.key.since_s)
            return replace(
                lease, phase=Phase.LEADER, epoch=Epoch(epoch), renewed_s=attempt.sent_s, attempt=None, key=key
            )
        return honest(lease, number)

    patch.setattr(learn, "_fail", bold)


def _take_over_too_soon(patch: pytest.MonkeyPatch) -> None:
    """Bug: an unchanged key is overwritten while its holder may still act."""
    patch.setattr(
        core, "is_free", lambda lease, key, now_s: key.holder in (None, lease.holder) or now_s >= key.since_s + 1.0
    )


def _adopt_an_own_write_that_was_never_answered(patch: pytest.MonkeyPatch) -> None:
    """Bug: a master that finds its own name in the key leads from then on."""
    honest = learn._see

    def finder(lease: Lease, revision: int, holder: str | None, at_s: float) -> Lease:
        seen = honest(lease, revision, holder, at_s)
        if seen is not lease and holder == lease.holder and lease.phase is Phase.STANDBY:
            attempt = Attempt(0, Ask.ACQUIRE, at_s)
            return learn._lead(seen, attempt, revision, at_s)
        return seen

    patch.setattr(learn, "_see", finder)


def _renew_whatever_the_main_loop_does(patch: pytest.MonkeyPatch) -> None:
    """Bug: the thread renews the lease although the main loop is stuck."""
    honest = learn.learn

    def blind(lease: Lease, event: LeaseEvent) -> Lease:
        return honest(lease, replace(event, pulse_s=event.at_s) if isinstance(event, Ticked) else event)

    patch.setattr(core, "learn", blind)


@pytest.mark.parametrize(
    "plant",
    [
        _count_from_the_answer,
        _lead_until_told_otherwise,
        _take_no_answer_for_a_yes,
        _take_over_too_soon,
        _adopt_an_own_write_that_was_never_answered,
        _renew_whatever_the_main_loop_does,
    ],
)
def test_a_planted_bug_is_caught(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulation finds it by the actions, not by the core's invariants."""
    monkeypatch.setattr("tests.lease.simulation.check", lambda before, after, effects, now_s: [])
    plant(monkeypatch)
    assert any(simulate(seed).broken is not None for seed in range(SEEDS))
