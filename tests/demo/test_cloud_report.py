"""Each claim about the cloud fails when the facts contradict it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from messages.api import EventLine
from messages.costs import CostView
from messages.ids import JobName, WorkerId
from tests.demo.claims import fails
from tests.demo.facts import A_KILL, FIRST, SMALLER, a_run
from tradewind.demo import changes
from tradewind.demo.checks import CLAIMS
from tradewind.demo.cloud import checks
from tradewind.demo.cloud.checks import CLOUD_CLAIMS
from tradewind.demo.cloud.facts import (
    Asked,
    CloudFacts,
    How,
    Parting,
    PlanReported,
    Removal,
    Stockout,
    Taken,
    asked_in,
    clusters_in,
    decisions_in,
    identified,
    partings_in,
    stockouts_in,
)
from tradewind.demo.cloud.report import CloudReport, cloud_lines
from tradewind.demo.report import report_on
from tradewind.terminal.costs import cost_lines

US, EUROPE = "us-central1", "europe-west4"
NOTICED = Taken("node-0", f"{US}-a", 15.0, FIRST, 5, at=100.5, worker=WorkerId("w0"))
LOST = Taken("node-2", f"{US}-a", 0.0, FIRST, 23, at=103.0, worker=A_KILL.worker)
HUNG = replace(LOST, node="node-3", at=98.0, how=How.HUNG, renewed_at=99.0)
UPGRADED = replace(NOTICED, node="node-4", notice_s=60.0, how=How.UPGRADED, renewed_at=102.0)
GONE = {
    WorkerId("w0"): Parting(100.9, "released: no longer needed"),
    A_KILL.worker: Parting(103.2, "its pod has ended"),
}


PLANNED = PlanReported(
    "aiming at 4 × L4 in us-central1-a (begin)", "the most steps", ("4 in europe-west4-a: 9 % dearer",)
)


def a_cloud() -> CloudFacts:
    """w0 leaves before the facts of `a_run` begin; w2 is lost; w5 joins from another region."""
    return CloudFacts(
        clusters=2,
        taken=(HUNG, LOST, UPGRADED, NOTICED),
        partings=GONE,
        regions={**{WorkerId(f"w{number}"): US for number in range(5)}, WorkerId("w5"): EUROPE},
        asked=(Asked(f"{US}-a", US, 90.0), Asked(f"{US}-b", US, 101.0), Asked(f"{EUROPE}-a", EUROPE, 102.0)),
        stockouts=(Stockout(f"{US}-b", US, 102.0),),
        losses=2,
        calls={"CreateCluster": 2, "CreateNodePool": 3},
        bill_micro_usd=7_680_000,
        decisions=(PLANNED,),
        cost=a_cost(7_640_000),
    )


def a_cost(micro_usd: int) -> CostView:
    """A cost of machines and egress; egress is no part of the cloud's bill."""
    return CostView(
        job=JobName("demo"),
        micro_usd=micro_usd + 50_000,
        nodes_micro_usd=micro_usd,
        egress_micro_usd=50_000,
        micro_usd_per_hour=0,
        machines=0,
        node_s=360.0,
        by_activity={},
    )


def fails_with(cloud: CloudFacts, check: Callable[..., Any], *values: object) -> None:
    fails(replace(a_run(), cloud=cloud), check, *values)


def reported(cloud: CloudFacts) -> CloudReport:
    report = report_on(replace(a_run(), cloud=cloud)).cloud
    assert report is not None
    return report


def test_a_run_on_a_cloud_that_keeps_every_promise_passes_every_check() -> None:
    report = report_on(replace(a_run(), cloud=a_cloud()))
    assert report.ok, report.failed_checks
    assert report.checks == (*CLAIMS, *CLOUD_CLAIMS)


def test_a_run_without_a_cloud_says_nothing_of_one() -> None:
    assert report_on(a_run()).cloud is None


@pytest.mark.parametrize(
    ("taken", "what"),
    [
        (LOST, changes.lost_text("w2")),
        (HUNG, changes.hung_text("w2")),
        (replace(UPGRADED, worker=A_KILL.worker), changes.upgraded_text("w2")),
    ],
)
def test_a_change_says_what_the_cloud_did_to_the_node(taken: Taken, what: str) -> None:
    first, *_ = report_on(replace(a_run(), cloud=replace(a_cloud(), taken=(taken,)))).changes
    assert first.what == what


def test_the_report_tells_what_was_taken_and_where_machines_came_from() -> None:
    report = reported(a_cloud())
    assert [(one.node, one.notice_s) for one in report.taken_with_notice] == [("node-4", 60.0), ("node-0", 15.0)]
    assert [one.left_after_s for one in report.taken_with_notice] == [pytest.approx(0.4)] * 2
    assert [(one.node, one.how) for one in report.taken_without] == [("node-3", "hung"), ("node-2", "preempted")]
    assert (report.losses, report.stockouts) == (2, ("us-central1-b",))
    assert report.asked_in == ("us-central1-a", "us-central1-b", "europe-west4-a")
    assert [world.workers for world in report.regions] == [{US: 4}, {US: 3}, {EUROPE: 1, US: 3}]
    assert (report.pools_left, report.nodes_left, report.bill_usd) == (0, 0, 7.68)


def test_the_report_for_people_names_the_bill_the_decision_and_the_cost() -> None:
    lines = cloud_lines(reported(a_cloud()))
    for part in ("7.6800 USD", PLANNED.text, *PLANNED.lost, *cost_lines(a_cost(7_640_000))):
        assert any(line.endswith(part) for line in lines)


@pytest.mark.parametrize(
    ("calls", "named"),
    [
        ({"CreateCluster": 1, "CreateNodePool": 3}, (1, 2)),
        ({"CreateCluster": 2}, ("no pool",)),
    ],
)
def test_what_was_not_made_through_the_api_is_told(calls: dict[str, int], named: tuple[object, ...]) -> None:
    fails_with(replace(a_cloud(), calls=calls), checks.made_through_the_api, *named)


@pytest.mark.parametrize(
    ("taken", "parting", "named"),
    [
        (LOST, None, ("no node",)),
        (replace(NOTICED, worker=None), None, ("no worker", "node-0")),
        (NOTICED, None, ("w0",)),
        (NOTICED, Parting(101.0, "its pod has ended"), ("w0", "its pod has ended")),
        (NOTICED, Parting(117.0, "released: late"), ("w0", "1.5 s")),
    ],
)
def test_a_notice_that_was_not_used_is_told(taken: Taken, parting: Parting | None, named: tuple[str, ...]) -> None:
    partings = {A_KILL.worker: GONE[A_KILL.worker], **({WorkerId("w0"): parting} if parting else {})}
    parted = {WorkerId("w9"): GONE[WorkerId("w0")]}
    both = (HUNG, replace(UPGRADED, worker=WorkerId("w9")), LOST, *((taken,) if taken is not LOST else ()))
    fails_with(replace(a_cloud(), taken=both, partings=partings | parted), checks.noticed_handed_over, *named)


def test_a_noticed_worker_in_a_later_world_is_told() -> None:
    came_back = replace(NOTICED, worker=WorkerId("w3"))
    cloud = replace(
        a_cloud(), taken=(HUNG, UPGRADED, came_back, LOST), partings={**GONE, WorkerId("w3"): GONE[WorkerId("w0")]}
    )
    fails_with(cloud, checks.noticed_handed_over, "w3", "generation 2")


def test_a_notice_that_was_counted_as_a_loss_is_told() -> None:
    fails_with(replace(a_cloud(), losses=3), checks.only_silent_ones_are_losses, "3 losses", "2 nodes")


def test_a_run_in_which_nothing_went_without_a_word_proves_nothing() -> None:
    taken = (HUNG, UPGRADED, NOTICED)
    fails_with(replace(a_cloud(), taken=taken, losses=1), checks.only_silent_ones_are_losses, "no node")


def test_a_run_without_a_stockout_proves_nothing() -> None:
    fails_with(replace(a_cloud(), stockouts=()), checks.came_from_elsewhere, "no zone")


def test_a_stockout_after_which_no_other_region_was_asked_is_told() -> None:
    late = (Stockout(f"{US}-b", US, 102.5),)
    fails_with(replace(a_cloud(), stockouts=late), checks.came_from_elsewhere, "us-central1-b")


def test_a_stockout_that_is_met_when_nothing_more_is_wanted_needs_no_answer() -> None:
    later = (*a_cloud().stockouts, Stockout(f"{US}-a", US, 110.0))
    assert report_on(replace(a_run(), cloud=replace(a_cloud(), stockouts=later))).ok


def test_worlds_within_one_region_are_told() -> None:
    at_home = {WorkerId(f"w{number}"): US for number in range(6)}
    fails_with(replace(a_cloud(), regions=at_home), checks.spanned_two_regions)


def test_pools_and_nodes_of_the_job_that_are_left_are_told() -> None:
    left = replace(a_cloud(), pools_left=("tw-demo-1",), nodes_left=("node-7", "node-8"))
    fails_with(left, checks.nothing_left_in_the_cloud, "1 pools", "tw-demo-1")
    fails_with(left, checks.nothing_left_in_the_cloud, "2 nodes", "node-7, node-8")


def test_a_cloud_that_billed_nothing_is_told() -> None:
    fails_with(replace(a_cloud(), bill_micro_usd=0), checks.ledger_agrees_with_the_bill, "no bill")


def test_a_ledger_that_disagrees_with_the_bill_is_told() -> None:
    apart = replace(a_cloud(), cost=a_cost(7_500_000))
    fails_with(apart, checks.ledger_agrees_with_the_bill, "7.5000 USD", "7.6800 USD", 2)
    fails_with(replace(a_cloud(), cost=None), checks.ledger_agrees_with_the_bill, "no cost")


def test_a_job_that_nobody_planned_is_told() -> None:
    fails_with(replace(a_cloud(), decisions=()), checks.was_decided_for_a_reason, "no plan")
    fails_with(replace(a_cloud(), decisions=(replace(PLANNED, why=""),)), checks.was_decided_for_a_reason, PLANNED.text)


def event(at: float, kind: str, why: str = "", **fields: str | int) -> EventLine:
    return EventLine(at, "demo", kind, kind, why, {**fields})


NOT_NEEDED = "released: no longer needed"
EVENTS = [
    event(90.0, "pool_created", zone=f"{US}-a", size=4),
    event(99.0, "worker_joined", worker="w0", cluster="sim-us"),
    event(99.5, "worker_gone", "its pod was ended", worker="w9"),
    event(100.6, "worker_noticed", worker="w0"),
    event(100.9, "worker_gone", NOT_NEEDED, worker="w0"),
    event(102.0, "zone_stocked_out", zone=f"{US}-b"),
    event(102.0, "pool_raised", zone=f"{EUROPE}-a", size=1),
    event(103.1, "worker_gone", "its pod was ended", worker="w8"),
    event(103.2, "worker_gone", "its pod has ended", worker="w2"),
]
MEMBERS = frozenset({WorkerId("w0"), WorkerId("w2"), WorkerId("w3")})


def test_who_was_on_a_taken_node_is_learned_from_what_was_said_after_it() -> None:
    assert identified(replace(NOTICED, worker=None), EVENTS, MEMBERS) == "w0"
    assert identified(replace(LOST, worker=None), EVENTS, MEMBERS) == "w2"
    assert identified(replace(LOST, worker=None, at=104.0), EVENTS, MEMBERS) is None
    assert identified(replace(NOTICED, worker=None, generation=SMALLER, at=101.0), EVENTS, MEMBERS) is None


def test_the_facts_of_the_cloud_are_read_from_the_masters_events() -> None:
    assert partings_in(EVENTS)[WorkerId("w0")] == Parting(100.9, NOT_NEEDED)
    assert clusters_in(EVENTS) == {"w0": "sim-us"}
    assert asked_in(EVENTS) == [(f"{US}-a", 90.0), (f"{EUROPE}-a", 102.0)]
    assert stockouts_in(EVENTS) == [(f"{US}-b", 102.0)]
    planned = event(89.0, "planned", PLANNED.why, workers=4, lost_1=PLANNED.lost[0])
    assert decisions_in([*EVENTS, planned]) == (PlanReported("planned", PLANNED.why, PLANNED.lost),)


@pytest.mark.parametrize(
    ("taken", "check", "named"),
    [
        ((LOST, UPGRADED, NOTICED), checks.hung_was_repaired, "no node"),
        ((replace(HUNG, renewed_at=None), LOST, UPGRADED, NOTICED), checks.hung_was_repaired, "node-3"),
        ((HUNG, LOST, NOTICED), checks.upgraded_handed_over, "no node"),
        ((HUNG, LOST, replace(UPGRADED, renewed_at=None), NOTICED), checks.upgraded_handed_over, "node-4"),
        ((HUNG, LOST, replace(UPGRADED, worker=None), NOTICED), checks.upgraded_handed_over, "node-4"),
    ],
)
def test_an_upgrade_or_a_repair_that_did_not_come_or_was_not_used_is_told(
    taken: tuple[Taken, ...], check: Callable[..., Any], named: str
) -> None:
    losses = sum(not each.notice_s for each in taken)
    fails_with(replace(a_cloud(), taken=taken, losses=losses), check, named)


def test_a_node_that_the_master_gave_up_before_it_was_repaired_is_told() -> None:
    cloud = replace(a_cloud(), removals=(Removal(98.5, "removing node-3"), Removal(99.5, "removing node-3")))
    fails_with(cloud, checks.hung_was_repaired, "removing node-3")
