"""Bugs planted in how worlds of live trainers change in place, which seeds must find."""

from collections.abc import Callable, Mapping, Sequence

import pytest
from msgspec import structs

from controlplane.job import changes as job_changes
from controlplane.job import learn_clusters as job_learn_clusters
from controlplane.job import learn_workers as job_learn_workers
from controlplane.job import turn as job_turn
from controlplane.job.live import stalls as job_stalls
from controlplane.job.live import trainers as job_live
from controlplane.job.live.repair import repair
from controlplane.job.live.stalls import Seat
from controlplane.job.phases import forming, reshaping, running, waiting
from controlplane.job.state import Job
from controlplane.job.workers import Worker
from messages.ids import Generation, WorkerId
from messages.workers import TrainerStatus
from messages.worlds import Assignment, LiveWorld, Member
from tests.simulation import live_trainers
from tests.simulation.run import simulate
from tests.simulation.seeds import is_found
from tests.simulation.settings import Setting
from tests.simulation.system import Outcome
from tradewind.protocol.trainer import Assign
from tradewind.sdk.trainer import learn as trainer_learn
from tradewind.sdk.trainer import reconcile as trainer_reconcile
from tradewind.sdk.trainer.events import StepReduced
from tradewind.sdk.trainer.state import Trainer, may_enter
from tradewind.sdk.trainer.turn import Turn as TrainerTurn


def simulate_live(seed: int) -> Outcome:
    """Simulates a seed whose script uses the SDK, on workers that cost little to simulate."""
    return simulate(seed, Setting(is_live=True))


def _go_on_from_the_oldest(patch: pytest.MonkeyPatch) -> None:
    """The world continues from the step that the slowest survivor computes next."""

    def oldest(
        next_members: Sequence[Member],
        survivors: Mapping[WorkerId, Sequence[TrainerStatus]],
        leaving_workers: tuple[WorkerId, ...] = (),
    ) -> LiveWorld:
        live = repair(next_members, survivors, leaving_workers)
        done = [trainer.done for trainers in survivors.values() for trainer in trainers]
        return structs.replace(live, resume=min(done, default=0), laggards=())

    patch.setattr(forming, "repair", oldest)


def _count_what_laggards_hold(patch: pytest.MonkeyPatch) -> None:
    """The gradients of the step before count as gradients of this one."""

    def mixed(
        next_members: Sequence[Member],
        survivors: Mapping[WorkerId, Sequence[TrainerStatus]],
        leaving_workers: tuple[WorkerId, ...] = (),
    ) -> LiveWorld:
        live = repair(next_members, survivors, leaving_workers)
        held = list(live.held)
        for member in next_members:
            for trainer in survivors.get(member.worker, ()):
                if trainer.local_rank < member.ranks:
                    held[member.first_rank + trainer.local_rank] = trainer.held
        return structs.replace(live, held=tuple(held))

    patch.setattr(forming, "repair", mixed)


def _forget_to_send_the_missing_sum(patch: pytest.MonkeyPatch) -> None:
    def unaware(
        next_members: Sequence[Member],
        survivors: Mapping[WorkerId, Sequence[TrainerStatus]],
        leaving_workers: tuple[WorkerId, ...] = (),
    ) -> LiveWorld:
        return structs.replace(repair(next_members, survivors, leaving_workers), laggards=())

    patch.setattr(forming, "repair", unaware)


def _keep_a_prepared_world_after_a_halt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reshaping, "_settle_prepared", lambda turn: None)


def _halt_below_what_is_prepared(patch: pytest.MonkeyPatch) -> None:
    """A halt uses the generation after the running one, although trainers may be in it already."""

    def next_one(job: Job) -> Generation:
        return job.record.generation

    for module in (job_turn, waiting, running):
        patch.setattr(module, "top", next_one)


def _take_joining_for_survivors(patch: pytest.MonkeyPatch) -> None:
    """Every attached rank counts as one with the state."""

    def whoever(worker: Worker) -> bool:
        return worker.slots > 0

    patch.setattr(job_live, "_has_state", whoever)


def _believe_a_switch_by_half(patch: pytest.MonkeyPatch) -> None:
    """One rank that switched stands for all."""

    def some(job: Job, world: Assignment) -> bool:
        return any(
            trainer.generation >= world.generation for worker in job.workers.values() for trainer in worker.trainers
        )

    patch.setattr(running, "has_switched", some)


def _overlook_broken_worlds(patch: pytest.MonkeyPatch) -> None:
    """Reports of trainers about a stopped world are ignored."""
    patch.setattr(job_changes, "_first_sign", lambda job: None)


def _halt_for_a_slow_rank(patch: pytest.MonkeyPatch) -> None:
    """One waiting rank stands for all."""
    patch.setattr(job_changes, "waits_in_vain", lambda job: "all ranks wait" if job.wait is not None else None)


def _call_the_first_that_is_missing_stalled(patch: pytest.MonkeyPatch) -> None:
    """The first missing rank does not get the time of a stall."""
    patch.setattr(job_stalls, "_stall_s", lambda job, seat, everybody: 0.0)


def _take_silence_for_slowness(patch: pytest.MonkeyPatch) -> None:
    """The master waits for a silent rank like for a running one."""
    patch.setattr(Seat, "answered", lambda seat, number: True)


def _count_a_lost_peer_as_a_failure(patch: pytest.MonkeyPatch) -> None:
    """A lost worker uses up the budget of the script."""
    honest = job_learn_workers.tombstone_all

    def blame(job: Job, lost: Mapping[WorkerId, str]) -> Job:
        after = honest(job, lost)
        if after.record.losses == job.record.losses:
            return after
        record = structs.replace(after.record, failures=after.record.failures + 1)
        return structs.replace(after, record=record)

    for module in (job_turn, job_learn_workers, job_learn_clusters):
        patch.setattr(module, "tombstone_all", blame)


def _replace_the_next_world_between_readiness_and_switch(patch: pytest.MonkeyPatch) -> None:
    """A newer assignment replaces the one for which this rank has reported that it is ready."""

    def may_replace(state: Trainer, assign: Assign) -> bool:
        following = state.plan.next
        return assign.entry == "planned" and following is not None and may_enter(state, following)

    patch.setattr(trainer_learn, "must_wait", may_replace)
    patch.setattr(trainer_reconcile, "must_wait", may_replace)
    patch.setattr(live_trainers, "check", lambda before, after, effects: [])  # found by what ranks do, too


def _forget_a_result_that_came_with_a_halt(patch: pytest.MonkeyPatch) -> None:
    """A trainer applies the step and does not report it."""
    honest = trainer_learn._step_reduced

    def forgetful(turn: TrainerTurn, event: StepReduced) -> None:
        trainer_learn._collective_ended(turn, ok=False) if turn.state.is_halted else honest(turn, event)

    patch.setattr(trainer_learn, "_step_reduced", forgetful)


@pytest.mark.parametrize(
    ("plant", "likely"),
    [
        (_go_on_from_the_oldest, 36),
        (_count_what_laggards_hold, 36),
        (_forget_to_send_the_missing_sum, 36),
        (_keep_a_prepared_world_after_a_halt, 9),
        (_halt_below_what_is_prepared, 17),
        (_take_joining_for_survivors, 9),
        (_believe_a_switch_by_half, 108),
        (_overlook_broken_worlds, 2),
        (_halt_for_a_slow_rank, 2),
        (_call_the_first_that_is_missing_stalled, 11),
        (_take_silence_for_slowness, 66),
        (_count_a_lost_peer_as_a_failure, 1),
        (_forget_a_result_that_came_with_a_halt, 36),
        (_replace_the_next_world_between_readiness_and_switch, 194),
    ],
)
def test_a_planted_bug_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], likely: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert is_found(simulate_live, likely=likely)
