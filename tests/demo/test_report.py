"""The report of the demonstration: each claim fails when the facts contradict it."""

import re
from dataclasses import replace

import pytest
from msgspec.structs import replace as replaced

from messages.api import EventLine, ProgressLine
from messages.ids import Generation, WorkerId
from messages.worlds import Entry
from tests.demo.claims import fails, names
from tests.demo.drawing import drawn
from tests.demo.facts import A_KILL, BATCH, FULL_AGAIN, SMALLER, WRITTEN, a_run, traced, trained
from tradewind.demo import changes, checks
from tradewind.demo.checks import CLAIMS
from tradewind.demo.facts import Formed, formed_from
from tradewind.demo.report import report_on, report_text

CERTIFICATE = "60 steps, 2,880 samples: 0 lost, 0 repeated"
HERE = "4 workers are here"
LOST_WORKER = "worker w2 was lost"
LOST = changes.lost_text("w2")
JOINED = changes.joined_text("w5")
CLAIM_OF = {check: claim for claim, check in CLAIMS.items()}


def test_a_run_that_keeps_every_promise_passes_every_check() -> None:
    report = report_on(a_run())
    assert report.ok
    assert report.failed_checks == ()
    assert report.checks == tuple(CLAIMS)


def test_the_report_counts_what_happened() -> None:
    report = report_on(a_run())
    assert (report.steps, report.samples) == (60, 60 * BATCH)
    assert [(world.world_size, world.first_step, world.last_step) for world in report.generations] == [
        (4, 0, 23),
        (3, 24, 35),
        (4, 36, 59),
    ]
    assert [world.why for world in report.generations] == ["4 workers ready", "w2 was lost", "w5 joined"]
    assert [(kill.worker, kill.after_step) for kill in report.kills] == [("w2", 23)]
    assert [(joined.worker, joined.rank) for joined in report.joins] == [("w5", 3)]
    assert [(change.kind, change.what) for change in report.changes] == [
        ("repair", LOST),
        ("join", JOINED),
    ]
    assert [(change.world_before, change.world_after) for change in report.changes] == [(4, 3), (3, 4)]
    assert [(change.after_step, change.repeated_steps) for change in report.changes] == [(23, 0), (35, 0)]
    assert [change.pause_s for change in report.changes] == [pytest.approx(0.1), pytest.approx(0.02)]
    assert report.step_s == pytest.approx(0.1)
    assert report.repeated_steps == 0
    assert report.certificate == CERTIFICATE
    assert (report.loss_first, report.loss_last, report.total_s) == (4.0, 2.0, 12.3)


def test_a_job_that_did_not_succeed_is_told() -> None:
    why = "rank 0 exited with 1"
    fails(replace(a_run(), phase="failed", why=why), checks.job_succeeded, "failed", why)


def test_a_missing_step_is_told() -> None:
    progress = [
        *trained(1, "w1 w2 w3 w4", range(24), from_s=100.0, loss=4.0),
        *trained(2, "w1 w3 w4", range(24, 36), from_s=104.0, loss=3.0),
        *trained(3, "w1 w3 w4 w5", range(36, 57), from_s=108.0, loss=2.0),
    ]
    fails(a_run(progress=progress), checks.all_steps_completed, 3, 60, 57)


def test_a_step_beyond_the_last_is_told() -> None:
    extra = trained(3, "w1 w3 w4 w5", range(60, 61), from_s=111.0)
    fails(a_run(progress=[*a_run().progress, *extra]), checks.all_steps_completed, 60, 59)


def test_a_rank_held_by_two_workers_is_told() -> None:
    twice = replace_worker(trained(3, "w1", range(36, 37), from_s=108.0), "w4")
    report = report_on(a_run(progress=[*a_run().progress, *twice]))
    assert names(report.failed_checks, "rank 0", "generation 3", "w1", "w4")


def replace_worker(reported: list[ProgressLine], worker: str) -> list[ProgressLine]:
    return [
        ProgressLine(at=one.at, worker=WorkerId(worker), generation=one.generation, ranks=one.ranks) for one in reported
    ]


def test_a_rank_that_was_never_there_is_told() -> None:
    absent = tuple(one for one in WRITTEN if not (one.generation == FULL_AGAIN and one.rank == 2))
    fails(a_run(written=absent), checks.ranks_held_once, "generation 3", "0…3", "0, 1, 3")


def test_a_world_that_nobody_announced_is_told() -> None:
    facts = a_run()
    report = report_on(replace(facts, formed=facts.formed[1:]))
    assert CLAIM_OF[checks.ranks_held_once] not in report.checks
    assert names(report.failed_checks, "generation 1")


@pytest.mark.parametrize(
    "said",
    [
        "",
        "60 steps, 2,880 samples: 1 lost, 0 repeated, first at step 3",
        "60 steps, 2,879 samples: 0 lost, 0 repeated",
        "60 steps, 2,880 samples: 0 lost, 0 repeated; 4 steps recomputed after a resume at step 20",
    ],
)
def test_a_certificate_that_is_not_flawless_is_told(said: str) -> None:
    fails(replace(a_run(), certificate=said), checks.certificate_holds, repr(said), repr(CERTIFICATE))


def test_a_worker_with_a_second_trainer_is_told() -> None:
    forked_again = tuple(replaced(one, pid=33) if one.pid == 3 and one.step >= 50 else one for one in WRITTEN)
    fails(a_run(written=forked_again), checks.none_restarted, "w3", 2)


def test_trainers_that_were_started_again_are_told() -> None:
    facts = a_run()
    cold = replace(facts, formed=(*facts.formed[:2], Formed(FULL_AGAIN, 4, "w5 joined")))
    fails(cold, checks.none_restarted, "generation 3")


def test_trainers_that_wrote_nothing_prove_nothing() -> None:
    assert CLAIM_OF[checks.none_restarted] not in report_on(a_run(written=())).checks


def test_a_step_that_was_computed_again_is_told() -> None:
    back = traced(2, "1 3 4", range(22, 24), from_s=102.45)
    written = tuple(sorted((*WRITTEN, *back), key=lambda one: one.at))
    fails(a_run(written=written), checks.nothing_repeated, "generation 2", "2 steps")


def test_a_noticed_worker_is_told_from_a_lost_one() -> None:
    facts = a_run()
    planned = (facts.formed[0], Formed(SMALLER, 3, "w2 has to go", Entry.PLANNED), facts.formed[2])
    noticed = replace(facts, formed=planned, noticed=frozenset({WorkerId("w2")}))
    first, *_ = report_on(noticed).changes
    assert (first.kind, first.what) == ("hand-over", changes.noticed_text("w2"))


def test_a_run_without_a_kill_proves_nothing() -> None:
    fails(a_run(kills=()), checks.killed_stay_dead)


def test_processes_that_survived_the_kill_are_told() -> None:
    fails(a_run(kills=(replace(A_KILL, survived=(4711, 4712)),)), checks.killed_stay_dead, "4711, 4712", "w2")


def test_a_killed_worker_in_a_later_world_is_told() -> None:
    progress = [
        *trained(1, "w1 w2 w3 w4", range(24), from_s=100.0, loss=4.0),
        *trained(2, "w1 w3 w4", range(24, 36), from_s=104.0, loss=3.0),
        *trained(3, "w1 w2 w4 w5", range(36, 60), from_s=108.0, loss=2.0),
    ]
    report = report_on(a_run(progress=progress))
    assert CLAIM_OF[checks.killed_stay_dead] not in report.checks
    assert names(report.failed_checks, "w2", "generation 3")


def test_a_run_that_never_trained_in_the_smaller_world_is_told() -> None:
    progress = [
        *trained(1, "w1 w2 w3 w4", range(24), from_s=100.0, loss=4.0),
        *trained(3, "w1 w3 w4 w5", range(24, 60), from_s=108.0, loss=2.0),
    ]
    fails(a_run(progress=progress), checks.shrank_and_grew, "world of 3", "w2")


def test_a_run_that_never_grew_again_is_told() -> None:
    progress = [
        *trained(1, "w1 w2 w3 w4", range(24), from_s=100.0, loss=4.0),
        *trained(2, "w1 w3 w5", range(24, 60), from_s=104.0, loss=2.0),
    ]
    fails(a_run(progress=progress), checks.shrank_and_grew, "world of 4", "w2")


def test_a_loss_without_a_replacement_is_told() -> None:
    progress = [
        *trained(1, "w1 w2 w3 w4", range(24), from_s=100.0, loss=4.0),
        *trained(2, "w1 w3 w4", range(24, 60), from_s=104.0, loss=2.0),
    ]
    assert CLAIM_OF[checks.lost_is_replaced] not in report_on(a_run(progress=progress)).checks


def test_a_loss_that_did_not_fall_is_told() -> None:
    progress = [
        *trained(1, "w1 w2 w3 w4", range(24), from_s=100.0, loss=4.0),
        *trained(2, "w1 w3 w4", range(24, 36), from_s=104.0, loss=3.0),
        *trained(3, "w1 w3 w4 w5", range(36, 60), from_s=108.0, loss=4.5),
    ]
    fails(a_run(progress=progress), checks.loss_fell, "4.0000", "4.5000")


def test_a_process_left_behind_is_told() -> None:
    left = "4711 python -m tradewind worker"
    fails(replace(a_run(), left_behind=(left,)), checks.nothing_left, 1, left)


def test_a_run_that_reported_nothing_fails_without_an_error_of_its_own() -> None:
    report = report_on(a_run(progress=[]))
    assert not report.ok
    assert CLAIM_OF[checks.loss_fell] not in report.checks
    assert report.changes == ()


def test_a_world_that_broke_within_its_first_step_need_not_be_heard_of_from_every_rank() -> None:
    progress = [
        *trained(1, "w1 w2 w3 w4", range(24), from_s=100.0, loss=4.0),
        *trained(2, "w1 w3", range(24, 25), from_s=104.0),
        *trained(4, "w1 w3 w4", range(25, 36), from_s=105.0),
        *trained(5, "w1 w3 w4 w5", range(36, 60), from_s=108.0),
    ]
    written = (
        *traced(1, "1 2 3 4", range(24), from_s=100.0),
        *traced(2, "1 3", range(24, 25), from_s=104.0),
        *traced(4, "1 3 4", range(25, 36), from_s=105.0),
        *traced(5, "1 3 4 5", range(36, 60), from_s=108.0),
    )
    facts = a_run(progress=progress, written=written)
    later = (
        Formed(Generation(4), 3, "again", Entry.REPAIR),
        Formed(Generation(5), 4, "w5 joined", Entry.PLANNED),
    )
    report = report_on(replace(facts, formed=(*facts.formed[:2], *later)))
    assert report.ok, report.failed_checks


def test_the_report_for_people_shows_each_check_and_each_failure() -> None:
    good, bad = drawn(report_text(report_on(a_run()))), drawn(report_text(report_on(a_run(kills=()))))
    assert all(f"✓ {claim}" in good for claim in CLAIMS)
    assert {"60", "2880", "12", "100"} <= set(re.findall(r"\d+", good))
    assert re.search(rf"23 +{re.escape(LOST)} +4 → 3 +100 ms +0", good)
    assert f"certificate: {a_run().certificate}" in good
    [problem] = report_on(a_run(kills=())).failed_checks
    assert f"✗ {problem}" in bad and "✗" not in good


def test_a_world_after_a_loss_is_explained_by_the_loss() -> None:
    events = [
        EventLine(1.0, "demo", "world_decided", "", HERE, {"generation": 1, "world_size": 4}),
        EventLine(2.0, "demo", "world_halted", "", LOST_WORKER, {"generation": 2}),
        EventLine(3.0, "demo", "world_decided", "", "3 workers are here", {"generation": 2, "world_size": 3}),
        EventLine(
            4.0, "demo", "world_decided", "", "w4 joined", {"generation": 3, "world_size": 4, "entry": "planned"}
        ),
    ]
    assert [(world.generation, world.size, world.why, world.entry) for world in formed_from(events)] == [
        (1, 4, HERE, ""),
        (2, 3, LOST_WORKER, ""),
        (3, 4, "w4 joined", "planned"),
    ]
