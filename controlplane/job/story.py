"""Events for people: the difference between a job before and after a decision."""

from controlplane.job.effects import Announce
from controlplane.job.sharing import share_patience_s, wanted_by_cluster
from controlplane.job.state import Job
from controlplane.job.stopping import checkpoint_text
from controlplane.job.texts import (
    BUDGET_ALLOWS,
    BY_PERSON,
    count,
    how_it_ended,
    reason_of,
    still_run_old_code,
    workers_are,
)
from controlplane.job.workers import Worker
from messages.ids import WorkerId
from messages.jobs import Scalar
from messages.records import Phase, Record
from messages.workers import WorkerPhase
from messages.worlds import Assignment, Entry

Fields = dict[str, Scalar | None]


def tell(before: Job, after: Job) -> list[Announce]:
    """Events in order of cause: requests, workers that came or left, then what follows."""
    asked = _asked(before.record, after.record)
    return [
        *asked,
        *_workers(before, after),
        *_failure(before, after),
        *_phase(before, after),
        *_reloaded(before.record, after.record),
        *_remarks(before, after),
    ]


def _asked(old: Record, new: Record) -> list[Announce]:
    announced = []
    if new.wanted != old.wanted:
        announced.append(Announce("job_scaled", f"{workers_are(new.wanted)} wanted", BY_PERSON))
    if new.reloads != old.reloads:
        text = f"reloading: {still_run_old_code(len(new.outdated))}"
        announced.append(Announce("job_reloading", text, BY_PERSON))
    return announced


def _workers(before: Job, after: Job) -> list[Announce]:
    announced = []
    for worker in (after.workers[name] for name in after.workers if name in after.workers.changed):
        known = before.workers.get(worker.worker)
        if worker.seq >= 0 and not _had_joined(known) and _had_joined(worker):
            fields: Fields = {"cluster": worker.cluster, "slots": worker.slots, "pid": worker.pid}
            announced.append(_about(worker.worker, "worker_joined", f"worker {worker.worker} joined", fields))
        if worker.noticed is not None and (known is None or known.noticed is None):
            announced.append(
                _about(worker.worker, "worker_noticed", f"worker {worker.worker} must leave", {}, worker.noticed)
            )
    for name in [name for name in after.gone if name not in before.gone] if after.gone is not before.gone else ():
        why = after.gone[name]
        if name in before.workers:
            is_unfit = after.failures.unfit.workers > before.failures.unfit.workers and after.failures.unfit.why == why
            kind, what = ("worker_unfit", "cannot train") if is_unfit else ("worker_gone", "is gone")
            announced.append(_about(name, kind, f"worker {name} {what}", {}, why))
    return announced


def _had_joined(worker: Worker | None) -> bool:
    return worker is not None and worker.phase is not WorkerPhase.WARMING


def _failure(before: Job, after: Job) -> list[Announce]:
    failure = after.round.failure if after.round.failure != before.round.failure else None
    if after.failures.counted is not None and after.failures.counted not in (
        before.failures.counted,
        before.round.failure,
    ):
        failure = after.failures.counted  # learned and counted in one decision
    if failure is None:
        return []
    exit_ = failure.exit
    return [
        Announce(
            kind="trainer_failed",
            text=f"rank {exit_.rank} on worker {failure.worker} {how_it_ended(exit_)}",
            why=reason_of(exit_),
            fields={
                "rank": exit_.rank,
                "worker": failure.worker,
                "code": exit_.code,
                "signal": exit_.signal,
                "peer_lost": exit_.peer_lost,
                "generation": after.record.assignment.generation if after.record.assignment is not None else None,
            },
        )
    ]


def _phase(before: Job, after: Job) -> list[Announce]:
    old, new = before.record, after.record
    announced: list[Announce] = []
    known = (None, old.assignment, old.prepared)
    decided = [world for world in (new.assignment, new.prepared) if world is not None and world not in known]
    announced += [_decided(world) for world in decided]
    if not new.checkpointed:
        announced += [text for world in decided for text in _without_checkpoint(world)]
    if new.phase == old.phase and new.generation == old.generation:
        return announced
    generation = {"generation": new.generation}
    match new.phase:
        case Phase.RUNNING:
            size = new.assignment.world_size if new.assignment is not None else 0
            text = f"generation {new.generation} is running with {count(size, 'rank')}"
            announced.append(Announce("world_running", text, new.why, {**generation, "world_size": size}))
        case Phase.RESHAPING:
            text = f"generation {old.generation} is over"
            if old.prepared is not None:
                text = f"{text}, and generation {old.prepared.generation} is abandoned"
            announced.append(Announce("world_halted", text, new.why, {**generation}))
        case Phase.WAITING if old.phase is not Phase.FORMING:
            announced.append(Announce("job_waiting", "the job waits", new.why, {**generation}))
        case Phase.SUCCEEDED | Phase.FAILED | Phase.STOPPED:
            proof = f"; certificate: {new.certificate.message}" if new.certificate is not None else ""
            if new.phase is Phase.STOPPED:
                proof = f"; {checkpoint_text(new.checkpoint)}{proof}"
            announced.append(
                Announce(
                    kind=f"job_{new.phase}",
                    text=f"the job has {new.phase}" if new.phase is not Phase.STOPPED else "the job was stopped",
                    why="\n".join((new.why + proof, *new.failed_tail)),
                    fields={"generation": new.generation, "failures": new.failures, "losses": new.losses},
                )
            )
        case _:
            pass
    return announced


def _decided(world: Assignment) -> Announce:
    fields: Fields = {
        "generation": world.generation,
        "world_size": world.world_size,
        "workers": len(world.members),
    }
    text = f"generation {world.generation}: a world of {count(world.world_size, 'rank')}"
    live = world.live
    if live is None:
        return Announce("world_decided", text, world.why, fields)
    fields["entry"] = live.entry
    match live.entry:
        case Entry.PLANNED:
            text = f"{text} is prepared while the current one trains"
            if live.leaving_workers:
                fields["leaving"] = ", ".join(live.leaving_workers)
        case Entry.REPAIR:
            text = f"{text} continues from step {live.resume}"
            fields["resume"] = live.resume
    return Announce("world_decided", text, world.why, fields)


def _without_checkpoint(world: Assignment) -> list[Announce]:
    """Warns about a restart without a checkpoint: only a person can tell whether the path is wrong."""
    launch = world.launch
    if launch.checkpoint_path is None or world.live is not None or not world.restarts:
        return []
    text = f"the script restarts, but there is no checkpoint at {launch.checkpoint_path}"
    why = "check that the script saves to launch.checkpoint_path"
    if launch.restart_args:
        why = f"launch.restart_args are used only after the first checkpoint; {why}"
    return [Announce("no_checkpoint_seen", text, why, {"generation": world.generation})]


def _reloaded(old: Record, new: Record) -> list[Announce]:
    if not old.outdated or new.outdated or new.phase.ended:
        return []
    return [Announce("job_reloaded", "no worker runs the old code any more", BY_PERSON)]


def _remarks(before: Job, after: Job) -> list[Announce]:
    announced = _joining_worker(before, after)
    if after.round.ranks_waiting and after.round.ranks_waiting != before.round.ranks_waiting:
        announced.append(Announce("ranks_waiting", after.round.ranks_waiting, "a peer never came to the rendezvous"))
    if after.store.error and after.store.error != before.store.error:
        announced.append(Announce("store_not_started", "the store of the next world did not start", after.store.error))
    for name, cluster in after.clusters.items():
        known = before.clusters.get(name)
        if cluster.refusal and (known is None or known.refusal != cluster.refusal):
            announced.append(
                Announce("cluster_refused", f"cluster {name} refused to keep the workers", cluster.refusal)
            )
    return [*announced, *_shares(before, after), *_doubts(before, after), *_budget(before.record, after.record)]


def _doubts(before: Job, after: Job) -> list[Announce]:
    return [
        _about(worker, "message_ignored", f"a message in the name of worker {worker} was ignored", {}, why)
        for worker, why in after.doubtful.by_worker.items()
        if worker not in before.doubtful.by_worker
    ]


def _shares(before: Job, after: Job) -> list[Announce]:
    announced = []
    for name, cluster in after.clusters.items():
        known = before.clusters.get(name)
        if cluster.cap is not None and known is not None and known.cap is None:
            share = count(wanted_by_cluster(before).get(name, 0), "worker")
            text = f"cluster {name} started {cluster.cap} of {share}; the other clusters are asked for the rest"
            why = f"no more became ready within {share_patience_s(before):g} s"
            announced.append(Announce("share_moved", text, why, {"cluster": name, "workers": cluster.cap}))
    if after.share_rounds > before.share_rounds:
        text = "all clusters are asked for more workers again"
        why = f"none started its share within {share_patience_s(before):g} s"
        announced.append(Announce("shares_renewed", text, why))
    return announced


def _joining_worker(before: Job, after: Job) -> list[Announce]:
    failed = after.failures.joining
    if failed is None or failed in (before.failures.joining, before.round.failure, after.round.failure):
        return []
    exit_, fields = failed.exit, Fields(worker=failed.worker, code=failed.exit.code, signal=failed.exit.signal)
    text = f"a joining trainer on worker {failed.worker} {how_it_ended(exit_)}; the others continue"
    return [Announce("joining_failed", text, reason_of(exit_), fields)]


def _budget(old: Record, new: Record) -> list[Announce]:
    announced = []
    if new.max_usd_total != old.max_usd_total:
        announced.append(Announce("budget_raised", f"the budget is {new.max_usd_total} USD", BY_PERSON))
    if new.paused is not None and old.paused is None:
        announced.append(Announce("job_paused", "the job is paused and deletes its machines", new.paused))
    if new.paused is None and old.paused is not None:
        announced.append(Announce("job_continued", "the job continues", BUDGET_ALLOWS))
    if new.spot_only is not None and old.spot_only is None:
        announced.append(Announce("on_demand_off", "the job deletes its on-demand machines", new.spot_only))
    if new.spot_only is None and old.spot_only is not None:
        announced.append(Announce("on_demand_on", "the job may use on-demand machines again", BUDGET_ALLOWS))
    return announced


def _about(worker: WorkerId, kind: str, text: str, fields: Fields, why: str = "") -> Announce:
    return Announce(kind, text, why, {"worker": worker, **fields})
