"""Phase `running`: a world trains. If its members should change, a next world is prepared meanwhile."""

from msgspec.structs import replace

from controlplane.job.assignment import assignment_of
from controlplane.job.changes import must_change
from controlplane.job.learn_exits import learn_exits
from controlplane.job.live.next_world import plan, planned_world, why_plan
from controlplane.job.live.stalls import why_waits
from controlplane.job.live.trainers import is_live, top, why_rejected
from controlplane.job.overdue import has_switched
from controlplane.job.queries import all_clean, chosen, may_differ, members, world_size
from controlplane.job.ranks import ranks_of
from controlplane.job.reload import why_reload_waits
from controlplane.job.scripts import may_restart, why_restart
from controlplane.job.sharing import capped
from controlplane.job.texts import all_exited, world_of
from controlplane.job.turn import Turn
from messages.ids import Generation
from messages.worlds import Assignment


def from_running(turn: Turn) -> bool:
    if all_clean(turn.job):
        return turn.succeed(all_exited(world_size(turn.job)))
    prepared = turn.record.prepared
    if prepared is not None and has_switched(turn.job, prepared):
        return _switch(turn, prepared)
    why = must_change(turn.job, turn.now_s)
    if why is not None:
        return turn.reshape(why)
    if may_differ(turn.job) and may_restart(turn.job):
        restart = why_restart(turn.job, chosen(turn.job), turn.now_s)
        if restart.why is not None:
            return turn.reshape(restart.why)
        turn.grows_at_s = restart.at_s
        if restart.waits:
            return turn.say(f"{turn.job.round.ranks_waiting or turn.record.why}; {restart.waits}")
    if prepared is not None:
        slow = why_waits(turn.job)
        preparing = f"{prepared.why}; preparing generation {prepared.generation}"
        return turn.say(f"{preparing}; {slow}" if slow else preparing)
    if is_live(turn.job):
        return _plan(turn)
    return turn.say(turn.job.round.ranks_waiting or _why_it_runs(turn))


def _why_it_runs(turn: Turn) -> str:
    short = len(members(turn.job)) < turn.record.wanted
    shortage = (turn.job.supply.shortage,) if turn.job.supply.shortage else ()
    return "; ".join((turn.record.why, *((*shortage, *capped(turn.job)) if short else ())))


def _plan(turn: Turn) -> bool:
    """Prepares the next world while the current one trains; all trainers switch after the same step."""
    why = why_plan(turn.job)
    if why is None:
        waits = (
            why_waits(turn.job) or turn.job.round.ranks_waiting or why_reload_waits(turn.job) or why_rejected(turn.job)
        )
        return turn.say(waits or _why_it_runs(turn))
    world = plan(turn.job)
    if isinstance(world, str):
        return turn.say(f"{why}; {world}")
    generation = Generation(top(turn.job) + 1)
    address = turn.lasting_store(generation)
    if address is None:
        return turn.say(f"{why}; waiting for the store")
    turn.job = replace(turn.job, round=replace(turn.job.round, prepared_s=turn.now_s, published_s=None))
    live = planned_world(turn.job, world.members)
    turn.set(prepared=assignment_of(turn.job, generation, world, address, why, live))
    return turn.say(f"{why}; preparing generation {generation}")


def _switch(turn: Turn, prepared: Assignment) -> bool:
    turn.begin_world()
    missed = [member for member in prepared.members if member.worker not in turn.job.workers]
    turn.job = replace(
        turn.job,
        round=replace(turn.job.round, clean=frozenset(rank for member in missed for rank in ranks_of(member))),
    )
    turn.set(
        assignment=prepared,
        generation=prepared.generation,
        prepared=None,
        formed=turn.record.formed + 1,
        why=world_of(prepared.world_size),
    )
    for name in sorted(turn.job.workers.exited):
        turn.job = learn_exits(turn.job, turn.job.workers[name])
    return True
