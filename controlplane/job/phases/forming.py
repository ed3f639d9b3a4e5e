"""Phase `forming`: a world is decided, and its members start."""

from msgspec.structs import replace

from controlplane.job import effects
from controlplane.job.assignment import assignment_of
from controlplane.job.changes import must_change
from controlplane.job.live.repair import repair
from controlplane.job.live.trainers import live_candidates, with_state
from controlplane.job.overdue import too_late, unreachable, unready
from controlplane.job.phases.waiting import what_to_wait_for
from controlplane.job.queries import chosen, members, world_size
from controlplane.job.ranks import Arrangement, arrange
from controlplane.job.reload import all_started_again
from controlplane.job.scripts import note_progress
from controlplane.job.texts import NOT_STARTED, store_failed, waits_to, workers_are, world_of
from controlplane.job.turn import Turn
from controlplane.job.workers import Worker
from messages.records import Phase
from messages.worlds import LiveWorld


def decide_world(turn: Turn) -> bool:
    """Decides the members when the store is ready, so that all workers known by then join together."""
    if what_to_wait_for(turn.job, turn.now_s) is not None or turn.record.stop_why is not None:
        return turn.set(phase=Phase.WAITING)
    if turn.halt_again():
        return True
    candidates = live_candidates(turn.job)
    generation = turn.record.generation
    address = turn.lasting_store(generation) if candidates else turn.store_address(generation)
    if address is None:
        error = turn.job.store.error
        return turn.say(f"{turn.record.why}; {store_failed(error)}" if error else turn.record.why)
    world = arrange(candidates or chosen(turn.job), turn.job.spec.replica)
    live = _repaired(turn, world, candidates) if candidates else None
    turn.begin_world()
    if live is None:
        turn.job = all_started_again(turn.job)
    why = f"{workers_are(len(world.members))} here: {world_of(world.world_size)}"
    if live is not None:
        why = f"{why} continues from step {live.resume}"
    return turn.set(assignment=assignment_of(turn.job, generation, world, address, why, live), why=why)


def from_forming(turn: Turn) -> bool:
    late = unready(turn.job)
    overdue = [
        *unreachable(turn.job, late, turn.now_s),
        *too_late(turn.job, late, NOT_STARTED, turn.now_s),
    ]
    if turn.remove(overdue):
        late = unready(turn.job)
    why = must_change(turn.job, turn.now_s)
    if why is not None:
        return turn.reshape(why)
    if late:
        return turn.say(waits_to("start", late))
    size = world_size(turn.job)
    world = turn.record.assignment
    if world is None or world.live is None:
        turn.effects.append(effects.WatchStore(turn.record.generation, size, turn.job.spec.timeouts.meet_s))
    turn.job = note_progress(turn.job, turn.now_s)
    grows_at_once = turn.job.script.grows_at_once and len(members(turn.job)) < turn.record.wanted
    turn.job = replace(turn.job, script=replace(turn.job.script, grows_at_once=grows_at_once))
    starts = turn.record.starts + (world is None or world.live is None)
    formed = turn.record.formed + 1
    return turn.set(phase=Phase.RUNNING, formed=formed, starts=starts, why=world_of(size))


def _repaired(turn: Turn, world: Arrangement, candidates: list[Worker]) -> LiveWorld:
    able = {worker.worker for worker in with_state(turn.job)}
    stay = {member.worker for member in world.members}
    return repair(
        world.members,
        {worker.worker: worker.trainers for worker in candidates if worker.worker in able},
        tuple(member.worker for member in members(turn.job) if member.worker not in stay),
    )
