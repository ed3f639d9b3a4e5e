"""Second half of a decision: compare what is known with what is wanted and move the job on, phase by phase."""

from dataclasses import replace
from typing import TypedDict, Unpack

from msgspec import structs

from controlplane.job import effects
from controlplane.job.assignment import assignment_of
from controlplane.job.changes import changes_in_place, must_change
from controlplane.job.commands import ask, is_unconfirmed, repeats_halt_at_s
from controlplane.job.learn_exits import learn_exits
from controlplane.job.learn_workers import backoff_s, tombstone
from controlplane.job.live.plan import give_up_at_s, hurry_at_s, plan, planned_world, why_plan
from controlplane.job.live.repair import repair
from controlplane.job.live.stalls import watch, watch_again_at_s, why_waits
from controlplane.job.live.trainers import (
    finishing,
    is_live,
    is_over,
    live_candidates,
    lives_on,
    never_parked,
    survivors,
    top,
    why_rests,
    with_state,
)
from controlplane.job.overdue import (
    OVERSLEPT_S,
    Overdue,
    has_switched,
    park_by_s,
    patience_s,
    silent,
    slept_s,
    some_switched,
    too_late,
    unparked,
    unparked_in_time,
    unreachable,
    unready,
)
from controlplane.job.queries import (
    all_clean,
    chosen,
    is_decided,
    members,
    world_size,
)
from controlplane.job.ranks import Arrangement, arrange, ranks_of
from controlplane.job.reload import all_began_anew, forget_outdated, tries_new_code, why_reload_waits
from controlplane.job.scripts import came_further, may_restart, next_start, why_restart
from controlplane.job.sentences import (
    all_exited,
    count,
    describe_exit,
    excerpt_of,
    failures_allowed,
    name_workers,
    workers_are,
)
from controlplane.job.sharing import capped, judge_shares
from controlplane.job.state import Job, Store, Worker
from controlplane.job.stopping import grace_s, is_ending
from controlplane.job.waiting import what_to_wait_for
from controlplane.job.wants import want_nodes
from messages.clusters import RemoveWorkers
from messages.ids import Generation
from messages.records import Phase, Record
from messages.workers import WrittenCheckpoint
from messages.worlds import Assignment, HotWorld, StoreAddress

BUSY_TICK_S = 0.5
CALM_TICK_S = 1.0


class _RecordFields(TypedDict, total=False):
    phase: Phase
    why: str
    generation: Generation
    assignment: Assignment | None
    prepared: Assignment | None
    formed: int
    starts: int
    failures: int
    failed_tail: tuple[str, ...]
    checkpoint: WrittenCheckpoint | None


class Turn:
    """One reconciliation: the job as it becomes, and the effects on the way."""

    def __init__(self, job: Job, now_s: float) -> None:
        self.job = job
        self.now_s = now_s
        self.effects: list[effects.JobEffect] = []
        self._grows_at_s: float | None = None
        """When workers that wait are admitted, if some do."""

    def reconcile(self) -> None:
        if not self._record.phase.ended:
            self._put_out(silent(self.job, self.now_s))
            self._note_the_end()
            self._watch()
            while self._advance():
                pass
            self.job = judge_shares(self.job, self.now_s)
        self.job, asked = ask(self.job, self.now_s)
        self.job, wanted = want_nodes(self.job, self.now_s)
        self.effects += [*asked, *wanted]

    @property
    def wake_at_s(self) -> float | None:
        """When to look again though nothing happened."""
        busy = is_unconfirmed(self.job)
        if self._record.phase.ended and not busy:
            return None
        wake_s = self.now_s + (BUSY_TICK_S if busy else CALM_TICK_S)
        return min([wake_s, *(at_s for at_s in self._deadlines() if at_s > self.now_s)])

    def _deadlines(self) -> list[float]:
        deadlines = [self.job.pause.retry_s, park_by_s(self.job), give_up_at_s(self.job), repeats_halt_at_s(self.job)]
        deadlines.append(self._grows_at_s)
        if self._record.phase in (Phase.RUNNING, Phase.FORMING) and changes_in_place(self.job):
            deadlines += hurry_at_s(self.job).values()
        deadlines += watch_again_at_s(self.job)
        return [at_s for at_s in deadlines if at_s is not None]

    def _advance(self) -> bool:
        """One transition, if one is due."""
        match self._record.phase:
            case Phase.WAITING:
                return self._from_waiting()
            case Phase.FORMING:
                return self._from_forming() if is_decided(self.job) else self._decide_world()
            case Phase.RUNNING:
                return self._from_running()
            case Phase.RESHAPING:
                return self._from_reshaping()
            case Phase.SUCCEEDED | Phase.FAILED | Phase.STOPPED:
                return False

    def _from_waiting(self) -> bool:
        if self._record.stop_why is not None and unparked(self.job):
            return self._reshape(self._record.stop_why)
        if self._record.stop_why is not None:
            return self._end(Phase.STOPPED, self._record.stop_why)
        unfit = self.job.failures.unfit
        if unfit.workers > self.job.spec.failures.max:
            why = f"{count(unfit.workers, 'worker')} in a row could not train: {unfit.why}"
            return self._end(Phase.FAILED, why)
        if self._halt_again():
            return True
        wait = what_to_wait_for(self.job, self.now_s)
        if wait is not None:
            return self._say(wait)
        generation = self._record.generation
        if generation == 0 or is_decided(self.job) or top(self.job) > generation:
            generation = Generation(top(self.job) + 1)
        return self._set(phase=Phase.FORMING, generation=generation, why="waiting for the store")

    def _decide_world(self) -> bool:
        """Membership is fixed at the last moment: whoever is known when the store is there goes in together."""
        if what_to_wait_for(self.job, self.now_s) is not None or self._record.stop_why is not None:
            return self._set(phase=Phase.WAITING)
        if self._halt_again():
            return True
        candidates = live_candidates(self.job)
        generation = self._record.generation
        address = self._lasting_store(generation) if candidates else self._store_address(generation)
        if address is None:
            error = self.job.store.error
            return self._say(f"{self._record.why}, which could not be started: {error}" if error else self._record.why)
        world = arrange(candidates or chosen(self.job), self.job.spec.replica)
        hot = self._repaired(world, candidates) if candidates else None
        self._begin_world()
        if hot is None:
            self.job = all_began_anew(self.job)
        why = f"{workers_are(len(world.members))} here: a world of {world.world_size}"
        if hot is not None:
            why = f"{why} goes on from step {hot.resume}"
        return self._set(assignment=assignment_of(self.job, generation, world, address, why, hot), why=why)

    def _halt_again(self) -> bool:
        late = never_parked(self.job)
        if not late or self._record.paused is not None:
            return False
        return self._reshape(f"{name_workers(late)} never parked, and may have trained on")

    def _repaired(self, world: Arrangement, candidates: list[Worker]) -> HotWorld:
        able = {worker.worker for worker in with_state(self.job)}
        stay = {member.worker for member in world.members}
        return repair(
            world.members,
            {worker.worker: worker.trainers for worker in candidates if worker.worker in able},
            tuple(member.worker for member in members(self.job) if member.worker not in stay),
        )

    def _begin_world(self) -> None:
        for gone in [worker for worker in self._record.outdated if worker not in self.job.workers]:
            self.job = forget_outdated(self.job, gone)
        self.job = replace(
            self.job,
            round=replace(
                self.job.round,
                assigned_s=self.now_s,
                published_s=None,
                clean=frozenset(),
                failure=None,
                quit=None,
                lost_member=False,
                store_lost=False,
                ranks_waiting="",
            ),
            script=replace(self.job.script, start=next_start(self.job), checkpointed_s=None),
            pause=replace(self.job.pause, begins_anew=False, retry_s=None),
        )

    def _from_forming(self) -> bool:
        self._put_out(unreachable(self.job, unready(self.job), self.now_s))
        self._put_out(too_late(self.job, unready(self.job), "did not start its trainers", self.now_s))
        why = must_change(self.job, self.now_s)
        if why is not None:
            return self._reshape(why)
        late = unready(self.job)
        if late:
            return self._say(f"waiting for {name_workers(late)} to start")
        size = world_size(self.job)
        world = self._record.assignment
        if world is None or world.hot is None:
            self.effects.append(effects.WatchStore(self._record.generation, size, self.job.spec.timeouts.meet_s))
        self.job = came_further(self.job, self.now_s)
        grows_at_once = self.job.script.grows_at_once and len(members(self.job)) < self._record.wanted
        self.job = replace(self.job, script=replace(self.job.script, grows_at_once=grows_at_once))
        starts = self._record.starts + (world is None or world.hot is None)
        formed = self._record.formed + 1
        return self._set(phase=Phase.RUNNING, formed=formed, starts=starts, why=f"a world of {size}")

    def _from_running(self) -> bool:
        if all_clean(self.job):
            return self._succeed(all_exited(world_size(self.job)))
        prepared = self._record.prepared
        if prepared is not None and has_switched(self.job, prepared):
            return self._switch(prepared)
        why = must_change(self.job, self.now_s)
        if why is not None:
            return self._reshape(why)
        if may_restart(self.job):
            restart = why_restart(self.job, chosen(self.job), self.now_s)
            if restart.why is not None:
                return self._reshape(restart.why)
            self._grows_at_s = restart.at_s
            if restart.waits:
                return self._say(f"{self.job.round.ranks_waiting or self._record.why}; {restart.waits}")
        if prepared is not None:
            slow = why_waits(self.job)
            preparing = f"{prepared.why}; preparing generation {prepared.generation}"
            return self._say(f"{preparing}; {slow}" if slow else preparing)
        if is_live(self.job):
            return self._plan()
        return self._say(self.job.round.ranks_waiting or self._why_it_runs())

    def _why_it_runs(self) -> str:
        short = len(members(self.job)) < self._record.wanted
        shortage = (self.job.supply.shortage,) if self.job.supply.shortage else ()
        return "; ".join((self._record.why, *((*shortage, *capped(self.job)) if short else ())))

    def _plan(self) -> bool:
        """The next world is told while this one trains; its trainers go over by themselves, all after the same step."""
        why = why_plan(self.job)
        if why is None:
            waits = (
                why_waits(self.job) or self.job.round.ranks_waiting or why_reload_waits(self.job) or why_rests(self.job)
            )
            return self._say(waits or self._why_it_runs())
        world = plan(self.job)
        if isinstance(world, str):
            return self._say(f"{why}; {world}")
        generation = Generation(top(self.job) + 1)
        address = self._lasting_store(generation)
        if address is None:
            return self._say(f"{why}; waiting for the store")
        self.job = replace(self.job, round=replace(self.job.round, prepared_s=self.now_s, published_s=None))
        hot = planned_world(self.job, world.members)
        self._set(prepared=assignment_of(self.job, generation, world, address, why, hot))
        return self._say(f"{why}; preparing generation {generation}")

    def _switch(self, prepared: Assignment) -> bool:
        self._begin_world()
        missed = [member for member in prepared.members if member.worker not in self.job.workers]
        self.job = replace(
            self.job,
            round=replace(self.job.round, clean=frozenset(rank for member in missed for rank in ranks_of(member))),
        )
        self._set(
            assignment=prepared,
            generation=prepared.generation,
            prepared=None,
            formed=self._record.formed + 1,
            why=f"a world of {prepared.world_size}",
        )
        for worker in self.job.workers.values():
            self.job = learn_exits(self.job, worker)
        return True

    def _reshape(self, why: str) -> bool:
        self.job = replace(
            self.job,
            round=replace(self.job.round, published_s=None, halted_s=None, assigned_s=self.now_s, ranks_waiting=""),
            pause=replace(self.job.pause, waiting_since_s=self.now_s),
        )
        self._set(phase=Phase.RESHAPING, generation=Generation(top(self.job) + 1), why=why)
        if self._record.stop_why is None and self._record.paused is None:
            generation = self._record.generation
            self._lasting_store(generation) if lives_on(self.job) else self._store_address(generation)
        return True

    def _from_reshaping(self) -> bool:
        self._put_out_unparked()
        self._put_out(unreachable(self.job, unparked(self.job), self.now_s))
        self._put_out(too_late(self.job, unparked(self.job), "did not end its trainers", self.now_s))
        late = unparked(self.job)
        if late and is_ending(self.job):
            wait = f"waiting up to {grace_s(self.job):g} s for {name_workers(late)} to end the loop body and save"
            return self._say(f"{self._record.why}; {wait}")
        if late:
            return self._say(f"{self._record.why}; waiting for {name_workers(late)} to park")
        return self._close_round()

    def _close_round(self) -> bool:
        """Everybody has parked or is gone: only now is it known whether the script failed or a peer was lost."""
        if all_clean(self.job):
            return self._succeed(all_exited(world_size(self.job)))
        if self._record.stop_why is not None:
            return self._end(Phase.STOPPED, self._record.stop_why)
        if finishing(self.job) and not survivors(self.job) and self.job.round.failure is None:
            return self._succeed("all steps are done, and every rank had them")
        self._settle_prepared()
        parking_s = self.now_s - (self.job.round.assigned_s or self.now_s)
        self.job = replace(
            self.job,
            pause=replace(self.job.pause, waiting_since_s=self.now_s),
            script=replace(self.job.script, start=replace(self.job.script.start, parking_s=parking_s)),
        )
        if self._record.paused is not None:
            self._set(checkpoint=self.job.checkpoint)
        goes_on = bool(survivors(self.job))
        failure = self.job.round.failure or (self.job.round.quit if goes_on else None)
        witness = failure is not None and failure.exit.peer_lost and (self.job.round.store_lost or goes_on)
        excused = self.job.round.lost_member and failure is not None and not failure.exit.stalled
        world = self._record.assignment
        is_counted = world is not None and world.generation == self.job.failures.judged
        if failure is None or excused or witness or is_counted:
            return self._set(phase=Phase.WAITING)
        why = describe_exit(failure.exit)
        if goes_on and tries_new_code(self.job, failure.worker):
            self.job = replace(self.job, failures=replace(self.job.failures, joining=failure))
            return self._set(phase=Phase.WAITING, why=f"{why}, with the new code: the others go on")
        self.job = replace(self.job, failures=replace(self.job.failures, counted=failure))
        limits = self.job.spec.failures
        failures = self._record.failures + 1
        if failures > limits.max:
            self._set(failures=failures, failed_tail=excerpt_of(failure.exit))
            return self._end(Phase.FAILED, f"{why}; {failures_allowed(limits.max)}")
        if goes_on:
            return self._set(phase=Phase.WAITING, failures=failures, why=f"{why}: the others go on")
        pause_s = backoff_s(limits, failures)
        self.job = replace(self.job, pause=replace(self.job.pause, retry_s=self.now_s + pause_s))
        return self._set(phase=Phase.WAITING, failures=failures, why=f"{why}: starting again in {pause_s:g} s")

    def _note_the_end(self) -> None:
        over_s = (self.job.round.over_s or self.now_s) if is_over(self.job) else None
        if over_s != self.job.round.over_s:
            self.job = replace(self.job, round=replace(self.job.round, over_s=over_s))

    def _succeed(self, why: str) -> bool:
        """What scripts still do after the last step is theirs: they are let finish, within bounds."""
        late = finishing(self.job)
        if late and self.job.round.over_s is not None and self.now_s - self.job.round.over_s <= patience_s(self.job):
            return self._say(f"all steps are done; waiting for {name_workers(late)} to end")
        return self._end(Phase.SUCCEEDED, why)

    def _settle_prepared(self) -> None:
        """If anybody went over, the prepared world is the one that was halted; else it has never been."""
        prepared = self._record.prepared
        if prepared is None:
            return
        if some_switched(self.job, prepared):
            self.job = replace(self.job, round=replace(self.job.round, clean=frozenset()))
            self._set(assignment=prepared, prepared=None)
        else:
            self._set(prepared=None)

    def _end(self, phase: Phase, why: str) -> bool:
        self.effects.append(effects.StopStores())
        self.job = replace(self.job, store=Store(), pause=replace(self.job.pause, retry_s=None))
        return self._set(phase=phase, why=why, prepared=None, checkpoint=self.job.checkpoint)

    def _put_out_unparked(self) -> None:
        """Unless this process was itself too slow to hear them: then they have another moment."""
        late, slept = unparked_in_time(self.job, self.now_s), slept_s(self.job, self.now_s)
        if late and slept and self.job.round.halted_s is not None:
            self.job = replace(
                self.job, round=replace(self.job.round, halted_s=self.job.round.halted_s + slept + OVERSLEPT_S)
            )
            return
        self._put_out(late)

    def _watch(self) -> None:
        self.job, removed, asked = watch(self.job, self.now_s)
        self.effects += asked
        self._put_out(removed)

    def _put_out(self, overdue: Overdue) -> None:
        for worker, why in overdue:
            self.job = tombstone(self.job, worker.worker, why)
            command = RemoveWorkers(self.job.name, (worker.worker,), why)
            self.effects.append(effects.TellCluster(worker.cluster, command))

    def _lasting_store(self, generation: Generation) -> StoreAddress | None:
        """Trainers that live on keep their store: they meet under another prefix in each generation."""
        return self.job.store.address or self._store_address(generation)

    def _store_address(self, generation: Generation) -> StoreAddress | None:
        """Of the store of that generation; asked for if nobody has."""
        store = self.job.store
        due = store.retry_s is not None and self.now_s >= store.retry_s
        if store.generation == generation and not due:
            return store.address
        self.job = replace(self.job, store=Store(generation, error=store.error))
        self.effects.append(effects.StartStore(generation))
        return None

    @property
    def _record(self) -> Record:
        return self.job.record

    def _set(self, **changes: Unpack[_RecordFields]) -> bool:
        """True if the phase or the world changed: then there may be more to do."""
        before = self._record
        after = structs.replace(before, **changes)
        self.job = replace(self.job, record=after, why=after.why)
        return (before.phase, before.assignment) != (after.phase, after.assignment)

    def _say(self, why: str) -> bool:
        """What the job waits for is for people: it is not worth saving."""
        self.job = replace(self.job, why=why)
        return False
