"""Events for people: which changes of a job are announced, once each, and with which facts."""

from typing import Any

import pytest
from msgspec.structs import replace

from controlplane.job.effects import Announce
from controlplane.job.sharing import share_patience_s
from controlplane.job.state import Barred, Cluster, Failure, Job, Unfit
from controlplane.job.story import tell
from messages.ids import ClusterName, Generation, Rank, WorkerId
from messages.jobs import Launch
from messages.records import Phase
from messages.workers import SampleCertificate, TrainerExit, WorkerPhase, WrittenCheckpoint
from messages.worlds import Assignment, Entry, LiveWorld
from tests.job.stage import LOCAL, a_spec, a_stage, clean, failed

A, B = WorkerId("a"), WorkerId("b")
BY_PERSON = "requested by a person"
CERTIFICATE = SampleCertificate(100, 1200, message="100 steps")


def a_running_job() -> Job:
    return fresh(a_stage(a_spec(workers=2)).runs("a", "b").job)


def fresh(job: Job) -> Job:
    """The job with a table of workers in which nothing has changed yet."""
    return replace(job, workers=job.workers.own_copy())


def recorded(job: Job, **changes: Any) -> Job:
    return replace(fresh(job), record=replace(job.record, **changes))


def with_worker(job: Job, worker: WorkerId = A, **changes: Any) -> Job:
    after = fresh(job)
    after.workers.put(replace(job.workers[worker], **changes))
    return after


def kinds(before: Job, after: Job) -> list[str]:
    return [each.kind for each in tell(before, after)]


def only(before: Job, after: Job) -> Announce:
    (announced,) = tell(before, after)
    return announced


OPEN: dict[str, Any] = {}
PAUSED: dict[str, Any] = {"paused": "budget"}
SPOT_ONLY: dict[str, Any] = {"spot_only": "budget"}
OLD_CODE: dict[str, Any] = {"outdated": (A, B), "reloads": 1}


@pytest.mark.parametrize(
    ("before", "after", "kind", "text", "why"),
    [
        (OPEN, {"wanted": 1}, "job_scaled", "1 worker is wanted", BY_PERSON),
        (OPEN, {"wanted": 3}, "job_scaled", "3 workers are wanted", BY_PERSON),
        (OPEN, OLD_CODE, "job_reloading", "reloading: 2 workers still run the old code", BY_PERSON),
        (OLD_CODE, {"outdated": ()}, "job_reloaded", "no worker runs the old code any more", BY_PERSON),
        (OPEN, {"max_usd_total": 5.0}, "budget_raised", "the budget is 5.0 USD", BY_PERSON),
        (OPEN, PAUSED, "job_paused", "the job is paused and deletes its machines", "budget"),
        (PAUSED, {"paused": None}, "job_continued", "the job continues", "the budget allows it again"),
        (OPEN, SPOT_ONLY, "on_demand_off", "the job deletes its on-demand machines", "budget"),
        (SPOT_ONLY, {"spot_only": None}, "on_demand_on", "the job may use on-demand machines again",
         "the budget allows it again"),
    ],
)  # fmt: skip
def test_a_changed_record_is_announced_once(
    before: dict[str, Any], after: dict[str, Any], kind: str, text: str, why: str
) -> None:
    old = recorded(a_running_job(), **before)
    new = recorded(old, **after)
    announced = only(old, new)
    assert (announced.kind, announced.text, announced.why) == (kind, text, why)
    assert tell(old, fresh(old)) == tell(new, fresh(new)) == []


@pytest.mark.parametrize("after", [{"outdated": (A,)}, {"paused": "another reason"}, {"spot_only": "another reason"}])
def test_what_continues_is_not_announced_again(after: dict[str, Any]) -> None:
    old = recorded(a_running_job(), **OLD_CODE, **PAUSED, **SPOT_ONLY)
    assert tell(old, recorded(old, **after)) == []


@pytest.mark.parametrize(
    ("phase", "text"),
    [
        (Phase.SUCCEEDED, "the job has succeeded"),
        (Phase.FAILED, "the job has failed"),
        (Phase.STOPPED, "the job was stopped"),
    ],
)
def test_the_end_is_announced_with_its_figures_and_proof(phase: Phase, text: str) -> None:
    job = recorded(a_running_job(), **OLD_CODE)
    ends: dict[str, Any] = {"phase": phase, "why": "why", "outdated": (), "failures": 2, "losses": 3}
    announced = only(job, recorded(job, **ends))
    saved = "; no checkpoint is known" if phase is Phase.STOPPED else ""
    assert (announced.kind, announced.text, announced.why) == (f"job_{phase}", text, f"why{saved}")
    assert announced.fields == {"generation": 1, "failures": 2, "losses": 3}
    checkpoint = WrittenCheckpoint(7, "/ckpt", 1.0)
    ends |= {"certificate": CERTIFICATE, "failed_tail": ("line 1", "line 2"), "checkpoint": checkpoint}
    saved = "; newest checkpoint: step 7 in /ckpt" if phase is Phase.STOPPED else ""
    proven = f"why{saved}; certificate: 100 steps\nline 1\nline 2"
    assert only(job, recorded(job, **ends)).why == proven


def a_next_world(job: Job, *, live: LiveWorld | None = None, **changes: Any) -> Assignment:
    world = job.record.assignment
    assert world is not None
    return replace(world, generation=Generation(2), why="b joined", live=live, **changes)


def test_phases_of_a_world_are_announced_with_their_generation() -> None:
    job = a_running_job()
    halted = recorded(job, phase=Phase.RESHAPING, generation=Generation(2), why="a was lost")
    over = only(job, halted)
    assert (over.kind, over.text, over.why, over.fields) == (
        "world_halted", "generation 1 is over", "a was lost", {"generation": 2},
    )  # fmt: skip
    prepared = recorded(job, prepared=a_next_world(job))
    abandoned = recorded(prepared, phase=Phase.RESHAPING, generation=Generation(3), prepared=None)
    assert only(prepared, abandoned).text == "generation 1 is over, and generation 2 is abandoned"
    waits = recorded(halted, phase=Phase.WAITING)
    waiting = only(halted, waits)
    assert (waiting.kind, waiting.text, waiting.why) == ("job_waiting", "the job waits", "a was lost")
    assert waiting.fields == {"generation": 2}
    forming = recorded(waits, phase=Phase.FORMING)
    assert tell(waits, forming) == tell(forming, waits) == []
    running = only(forming, recorded(forming, phase=Phase.RUNNING, why="a world of 2"))
    assert (running.kind, running.text) == ("world_running", "generation 2 is running with 2 ranks")
    assert (running.why, running.fields) == ("a world of 2", {"generation": 2, "world_size": 2})
    assert kinds(prepared, recorded(prepared, generation=Generation(2))) == ["world_running"]
    assert only(forming, recorded(forming, phase=Phase.RUNNING, assignment=None)).fields["world_size"] == 0


@pytest.mark.parametrize("place", ["assignment", "prepared"])
def test_a_decided_world_is_announced_with_how_it_is_entered(place: str) -> None:
    job = a_running_job()
    figures = {"generation": 2, "world_size": 2, "workers": 2}
    planned = LiveWorld(Entry.PLANNED, (0, -1))
    repair = LiveWorld(Entry.REPAIR, (0, 1), leaving_workers=(B,), resume=7)
    text = "generation 2: a world of 2 ranks"
    prepares = f"{text} is prepared while the current one trains"
    for live, expected, fields in (
        (None, text, {}),
        (planned, prepares, {"entry": Entry.PLANNED}),
        (replace(planned, leaving_workers=(A, B)), prepares, {"entry": Entry.PLANNED, "leaving": "a, b"}),
        (repair, f"{text} continues from step 7", {"entry": Entry.REPAIR, "resume": 7}),
    ):
        after = recorded(job, **{place: a_next_world(job, live=live)})
        announced = only(job, after)
        assert (announced.kind, announced.text, announced.why) == ("world_decided", expected, "b joined")
        assert announced.fields == figures | fields
        assert tell(after, fresh(after)) == []
    prepared = recorded(job, prepared=a_next_world(job))
    assert tell(prepared, recorded(prepared, prepared=None, assignment=prepared.record.prepared)) == []


def test_a_restart_without_a_checkpoint_is_announced() -> None:
    job = a_running_job()
    launch = Launch(script="train.py", checkpoint_path="/ckpt")
    world = a_next_world(job, restarts=1, launch=launch)
    decided, warning = tell(job, recorded(job, assignment=world))
    assert (decided.kind, warning.kind) == ("world_decided", "no_checkpoint_seen")
    assert warning.text == "the script restarts, but there is no checkpoint at /ckpt"
    assert (warning.why, warning.fields) == (
        "check that the script saves to launch.checkpoint_path", {"generation": 2},
    )  # fmt: skip
    resumes = replace(world, launch=replace(launch, restart_args=("--resume",)))
    _, warning = tell(job, recorded(job, assignment=resumes))
    assert warning.why.startswith("launch.restart_args are used only after the first checkpoint; ")
    for fine in (
        replace(world, restarts=0),
        replace(world, launch=Launch(script="train.py")),
        replace(world, live=LiveWorld(Entry.PLANNED, (0, 1))),
    ):
        assert kinds(job, recorded(job, assignment=fine)) == ["world_decided"]
    assert kinds(job, recorded(job, assignment=world, checkpointed=True)) == ["world_decided"]


def test_a_worker_that_joins_or_gets_a_notice_is_announced_once() -> None:
    job = a_running_job()
    warming = with_worker(job, phase=WorkerPhase.WARMING, pid=7, slots=2)
    joined = only(fresh(warming), with_worker(warming, phase=WorkerPhase.IDLE))
    assert (joined.kind, joined.text, joined.why) == ("worker_joined", "worker a joined", "")
    assert joined.fields == {"worker": "a", "cluster": "local", "slots": 2, "pid": 7}
    unknown = fresh(job)
    unknown.workers.drop(A)
    assert kinds(fresh(unknown), with_worker(job)) == ["worker_joined"]
    assert tell(fresh(unknown), with_worker(job, seq=-1)) == []
    assert kinds(fresh(unknown), with_worker(job, seq=0)) == ["worker_joined"]
    assert tell(fresh(unknown), with_worker(job, phase=WorkerPhase.WARMING)) == []
    assert tell(fresh(warming), with_worker(warming, pid=8)) == []
    noticed = with_worker(job, noticed="spot")
    leaves = only(job, noticed)
    assert (leaves.kind, leaves.text, leaves.why) == ("worker_noticed", "worker a must leave", "spot")
    assert leaves.fields == {"worker": "a"}
    assert tell(fresh(noticed), with_worker(noticed, noticed="again")) == []
    assert kinds(fresh(unknown), with_worker(job, phase=WorkerPhase.WARMING, noticed="spot")) == ["worker_noticed"]


def test_a_worker_that_is_gone_is_announced_with_its_reason() -> None:
    job = a_running_job()
    gone = replace(fresh(job), gone={A: "SIGKILL", WorkerId("x"): "left"})
    announced = only(job, gone)
    assert (announced.kind, announced.text, announced.why) == ("worker_gone", "worker a is gone", "SIGKILL")
    assert announced.fields == {"worker": "a"}
    assert tell(gone, replace(fresh(gone), gone=dict(gone.gone))) == []
    unfit = replace(gone, failures=replace(job.failures, unfit=Unfit(1, "SIGKILL")))
    cannot = only(job, unfit)
    assert (cannot.kind, cannot.text) == ("worker_unfit", "worker a cannot train")
    other = replace(gone, failures=replace(job.failures, unfit=Unfit(1, "no GPU")))
    assert kinds(job, other) == ["worker_gone"]
    before = replace(job, failures=replace(job.failures, unfit=Unfit(1, "SIGKILL")))
    assert kinds(before, unfit) == ["worker_gone"]


def with_failure(job: Job, *, of_round: Failure | None = None, **failures: Failure | None) -> Job:
    changed = replace(job.failures, **failures)
    return replace(fresh(job), round=replace(job.round, failure=of_round), failures=changed)


def test_a_failed_trainer_is_announced_when_it_is_learned_and_not_again_when_it_counts() -> None:
    job = a_running_job()
    failure, other = Failure(B, failed(1, "Traceback", "ValueError")), Failure(A, failed(0))
    learned = with_failure(job, of_round=failure)
    announced = only(job, learned)
    assert (announced.kind, announced.text) == ("trainer_failed", "rank 1 on worker b exited with 1")
    assert announced.why == "Traceback\nValueError"
    assert announced.fields == {
        "rank": 1, "worker": "b", "code": 1, "signal": None, "peer_lost": False, "generation": 1,
    }  # fmt: skip
    counted = with_failure(learned, of_round=failure, counted=failure)
    assert tell(learned, counted) == tell(counted, with_failure(counted, counted=failure)) == []
    assert kinds(job, with_failure(job, counted=failure)) == ["trainer_failed"]
    assert "worker a" in only(counted, with_failure(counted, of_round=failure, counted=other)).text
    assert "worker a" in only(learned, with_failure(learned, of_round=other)).text
    ended = replace(learned, record=replace(learned.record, assignment=None))
    assert only(job, ended).fields["generation"] is None


def test_a_joining_trainer_that_failed_is_announced_unless_it_is_a_failure_of_the_world() -> None:
    job = a_running_job()
    failure, other = Failure(B, TrainerExit(Rank(1), signal="SIGSEGV", error="boom")), Failure(A, failed(0))
    after = with_failure(job, joining=failure)
    announced = only(job, after)
    assert (announced.kind, announced.why) == ("joining_failed", "boom")
    assert announced.text == "a joining trainer on worker b was ended by SIGSEGV; the others continue"
    assert announced.fields == {"worker": "b", "code": None, "signal": "SIGSEGV"}
    assert tell(after, fresh(after)) == []
    of_world = with_failure(job, of_round=failure)
    assert tell(of_world, with_failure(of_world, of_round=failure, joining=failure)) == []
    assert tell(of_world, with_failure(of_world, joining=failure)) == []
    assert kinds(job, with_failure(job, of_round=failure, joining=failure)) == ["trainer_failed"]
    assert kinds(after, with_failure(after, joining=other)) == ["joining_failed"]


def with_cluster(job: Job, name: ClusterName = LOCAL, **changes: Any) -> Job:
    known = job.clusters.get(name, Cluster("a1", 100.0, 0))
    return replace(fresh(job), clusters={**job.clusters, name: replace(known, **changes)})


def test_remarks_are_made_once_for_each_new_reason() -> None:
    job = a_running_job()
    meets = replace(fresh(job), round=replace(job.round, ranks_waiting="rank 0 waits"))
    store = replace(fresh(job), store=replace(job.store, error="no port"))
    doubts = replace(fresh(job), doubtful=replace(job.doubtful, by_worker={B: "it lies"}))
    refused = with_cluster(job, refusal="no quota")
    for after, expected in (
        (meets, ("ranks_waiting", "rank 0 waits", "a peer never came to the rendezvous")),
        (store, ("store_not_started", "the store of the next world did not start", "no port")),
        (refused, ("cluster_refused", "cluster local refused to keep the workers", "no quota")),
        (doubts, ("message_ignored", "a message in the name of worker b was ignored", "it lies")),
    ):
        announced = only(job, after)
        assert (announced.kind, announced.text, announced.why) == expected
        assert tell(after, fresh(after)) == tell(after, job) == []
    assert only(job, doubts).fields == {"worker": "b"}
    assert kinds(meets, replace(fresh(meets), round=replace(job.round, ranks_waiting="rank 1 waits")))
    assert kinds(store, replace(fresh(store), store=replace(job.store, error="no host"))) == ["store_not_started"]
    assert kinds(refused, with_cluster(job, refusal="no permission")) == ["cluster_refused"]
    assert kinds(job, with_cluster(job, ClusterName("other"), refusal="no quota")) == ["cluster_refused"]


def test_moved_and_renewed_shares_are_announced() -> None:
    job = replace(with_cluster(a_running_job(), ClusterName("other")), gathers_until_s=None)
    capped = with_cluster(job, ClusterName("other"), cap=0)
    moved = only(job, capped)
    assert (moved.kind, moved.fields) == ("share_moved", {"cluster": "other", "workers": 0})
    assert moved.text == "cluster other started 0 of 0 workers; the other clusters are asked for the rest"
    assert moved.why == f"no more became ready within {share_patience_s(job):g} s"
    assert tell(capped, fresh(capped)) == tell(capped, job) == []
    assert tell(a_running_job(), capped) == []
    renewed = replace(fresh(job), share_rounds=1)
    again = only(job, renewed)
    assert (again.kind, again.text) == ("shares_renewed", "all clusters are asked for more workers again")
    assert again.why == f"none started its share within {share_patience_s(job):g} s"
    assert tell(renewed, fresh(renewed)) == tell(renewed, job) == []


def test_nothing_is_announced_of_what_only_the_master_needs() -> None:
    job = a_running_job()
    changed = replace(
        fresh(job),
        round=replace(job.round, clean=frozenset({Rank(0)}), quit=Failure(A, clean(0))),
        failures=replace(job.failures, barred={A: Barred(1, 5.0)}),
        why="another",
    )
    assert tell(job, changed) == []
