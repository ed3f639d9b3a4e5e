"""A world is decided, and its members start."""

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
from controlplane.job.reload import all_began_anew
from controlplane.job.scripts import came_further
from controlplane.job.sentences import name_workers, workers_are
from controlplane.job.turn import Turn
from controlplane.job.workers import Worker
from messages.records import Phase
from messages.worlds import HotWorld


def decide_world(turn: Turn) -> bool:
    """Fixes the members at the last moment: all workers known when the store is ready join together."""
    if what_to_wait_for(turn.job, turn.now_s) is not None or turn.record.stop_why is not None:
        return turn.set(phase=Phase.WAITING)
    if turn.halt_again():
        return True
    candidates = live_candidates(turn.job)
    generation = turn.record.generation
    address = turn.lasting_store(generation) if candidates else turn.store_address(generation)
    if address is None:
        error = turn.job.store.error
        return turn.say(f"{turn.record.why}, which could not be started: {error}" if error else turn.record.why)
    world = arrange(candidates or chosen(turn.job), turn.job.spec.replica)
    hot = _repaired(turn, world, candidates) if candidates else None
    turn.begin_world()
    if hot is None:
        turn.job = all_began_anew(turn.job)
    why = f"{workers_are(len(world.members))} here: a world of {world.world_size}"
    if hot is not None:
        why = f"{why} goes on from step {hot.resume}"
    return turn.set(assignment=assignment_of(turn.job, generation, world, address, why, hot), why=why)


def from_forming(turn: Turn) -> bool:
    late = unready(turn.job)
    overdue = [
        *unreachable(turn.job, late, turn.now_s),
        *too_late(turn.job, late, "did not start its trainers", turn.now_s),
    ]
    if turn.remove(overdue):
        late = unready(turn.job)
    why = must_change(turn.job, turn.now_s)
    if why is not None:
        return turn.reshape(why)
    if late:
        return turn.say(f"waiting for {name_workers(late)} to start")
    size = world_size(turn.job)
    world = turn.record.assignment
    if world is None or world.hot is None:
        turn.effects.append(effects.WatchStore(turn.record.generation, size, turn.job.spec.timeouts.meet_s))
    turn.job = came_further(turn.job, turn.now_s)
    grows_at_once = turn.job.script.grows_at_once and len(members(turn.job)) < turn.record.wanted
    turn.job = replace(turn.job, script=replace(turn.job.script, grows_at_once=grows_at_once))
    starts = turn.record.starts + (world is None or world.hot is None)
    formed = turn.record.formed + 1
    return turn.set(phase=Phase.RUNNING, formed=formed, starts=starts, why=f"a world of {size}")


def _repaired(turn: Turn, world: Arrangement, candidates: list[Worker]) -> HotWorld:
    able = {worker.worker for worker in with_state(turn.job)}
    stay = {member.worker for member in world.members}
    return repair(
        world.members,
        {worker.worker: worker.trainers for worker in candidates if worker.worker in able},
        tuple(member.worker for member in members(turn.job) if member.worker not in stay),
    )
