"""Each claim about the cloud turns red when the facts contradict it."""

from dataclasses import replace

import pytest

from messages.api import EventLine
from messages.costs import CostView
from messages.ids import JobName, WorkerId
from tests.demo.facts import A_KILL, FIRST, SMALLER, a_run
from tradewind.demo.checks import CLAIMS
from tradewind.demo.cloud.checks import CLOUD_CLAIMS
from tradewind.demo.cloud.facts import (
    Asked,
    CloudFacts,
    How,
    Parting,
    PlanTold,
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

US, EUROPE = "us-central1", "europe-west4"
NOTICED = Taken("node-0", f"{US}-a", 15.0, FIRST, 5, at=100.5, worker=WorkerId("w0"))
LOST = Taken("node-2", f"{US}-a", 0.0, FIRST, 23, at=103.0, worker=A_KILL.worker)
HUNG = replace(LOST, node="node-3", at=98.0, how=How.HUNG, renewed_at=99.0)
UPGRADED = replace(NOTICED, node="node-4", notice_s=60.0, how=How.UPGRADED, renewed_at=102.0)
GONE = {
    WorkerId("w0"): Parting(100.9, "released: no longer needed"),
    A_KILL.worker: Parting(103.2, "its pod has ended"),
}


PLANNED = PlanTold("aiming at 4 × L4 in us-central1-a (begin)", "the most steps", ("4 in europe-west4-a: 9 % dearer",))


def a_cloud() -> CloudFacts:
    """w0 had to go before the facts of `a_run` begin; w2 is lost as they tell; w5 comes from another region."""
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
    """Of machines; egress is no part of the cloud's bill."""
    return CostView(
        job=JobName("demo"),
        micro_usd=micro_usd + 50_000,
        nodes_micro_usd=micro_usd,
        egress_micro_usd=50_000,
        micro_usd_per_hour=0,
        machines=0,
        node_s=360.0,
        by_doing={},
    )


def failed(cloud: CloudFacts) -> str:
    """The one claim that fails, with its sentence."""
    report = report_on(replace(a_run(), cloud=cloud))
    assert not report.ok
    missing = [claim for claim in (*CLAIMS, *CLOUD_CLAIMS) if claim not in report.checks]
    assert len(missing) == 1, report.failed_checks
    return f"{missing[0]}: {'; '.join(report.failed_checks)}"


def told(cloud: CloudFacts) -> CloudReport:
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
        (LOST, "w2 was lost without a word"),
        (HUNG, "w2 was on a node that hung"),
        (replace(UPGRADED, worker=A_KILL.worker), "w2 left before an upgrade"),
    ],
)
def test_a_change_says_what_the_cloud_did_to_the_node(taken: Taken, what: str) -> None:
    changes = report_on(replace(a_run(), cloud=replace(a_cloud(), taken=(taken,)))).changes
    assert changes[0].what == what


def test_the_report_tells_what_was_taken_and_where_machines_came_from() -> None:
    report = told(a_cloud())
    assert [(one.node, one.notice_s) for one in report.taken_with_notice] == [("node-4", 60.0), ("node-0", 15.0)]
    assert [one.left_after_s for one in report.taken_with_notice] == [pytest.approx(0.4)] * 2
    assert [(one.node, one.how) for one in report.taken_without] == [("node-3", "hung"), ("node-2", "preempted")]
    assert (report.losses, report.stockouts) == (2, ("us-central1-b",))
    assert report.asked_in == ("us-central1-a", "us-central1-b", "europe-west4-a")
    assert [world.workers for world in report.regions] == [{US: 4}, {US: 3}, {EUROPE: 1, US: 3}]
    assert (report.pools_left, report.nodes_left, report.bill_usd) == (0, 0, 7.68)


def test_the_report_for_people_names_the_bill_the_decision_and_the_cost() -> None:
    lines = cloud_lines(told(a_cloud()))
    assert "left in the cloud: 0 pools, 0 nodes; its bill: 7.6800 USD" in lines
    assert "the first of 1 plans: aiming at 4 × L4 in us-central1-a (begin)" in lines
    assert "  not chosen: 4 in europe-west4-a: 9 % dearer" in lines
    assert any(line.startswith("Job demo has cost 7.6900 USD") for line in lines)


@pytest.mark.parametrize(
    ("calls", "sentence"),
    [
        ({"CreateCluster": 1, "CreateNodePool": 3}, "1 clusters were made through the cloud's API, not 2"),
        ({"CreateCluster": 2}, "no pool was made through the cloud's API"),
    ],
)
def test_what_was_not_made_through_the_api_is_told(calls: dict[str, int], sentence: str) -> None:
    assert sentence in failed(replace(a_cloud(), calls=calls))


@pytest.mark.parametrize(
    ("taken", "parting", "sentence"),
    [
        (LOST, None, "no node was taken with notice"),
        (replace(NOTICED, worker=None), None, "no worker was told that node node-0 would be taken"),
        (NOTICED, None, "the noticed worker w0 never left"),
        (NOTICED, Parting(101.0, "its pod has ended"), "the noticed worker w0 was not released: its pod has ended"),
        (NOTICED, Parting(117.0, "released: late"), "the noticed worker w0 left 1.5 s after its node was taken"),
    ],
)
def test_a_notice_that_was_not_used_is_told(taken: Taken, parting: Parting | None, sentence: str) -> None:
    partings = {A_KILL.worker: GONE[A_KILL.worker], **({WorkerId("w0"): parting} if parting else {})}
    parted = {WorkerId("w9"): GONE[WorkerId("w0")]}
    both = (HUNG, replace(UPGRADED, worker=WorkerId("w9")), LOST, *((taken,) if taken is not LOST else ()))
    assert sentence in failed(replace(a_cloud(), taken=both, partings=partings | parted))


def test_a_noticed_worker_in_a_later_world_is_told() -> None:
    came_back = replace(NOTICED, worker=WorkerId("w3"))
    cloud = replace(
        a_cloud(), taken=(HUNG, UPGRADED, came_back, LOST), partings={**GONE, WorkerId("w3"): GONE[WorkerId("w0")]}
    )
    assert "the noticed worker w3 holds a rank in generation 2" in failed(cloud)


def test_a_notice_that_was_counted_as_a_loss_is_told() -> None:
    sentence = "3 losses were counted, but 2 nodes were lost or hung without a word"
    assert sentence in failed(replace(a_cloud(), losses=3))


def test_a_run_in_which_nothing_went_without_a_word_proves_nothing() -> None:
    taken = (HUNG, UPGRADED, NOTICED)
    assert "no node was lost without a word" in failed(replace(a_cloud(), taken=taken, losses=1))


def test_a_run_without_a_stockout_proves_nothing() -> None:
    assert "no zone was found without machines" in failed(replace(a_cloud(), stockouts=()))


def test_a_stockout_after_which_no_other_region_was_asked_is_told() -> None:
    late = (Stockout(f"{US}-b", US, 102.5),)
    assert "us-central1-b had no machines, and none were asked for in another region" in failed(
        replace(a_cloud(), stockouts=late)
    )


def test_a_stockout_that_is_met_when_nothing_more_is_wanted_needs_no_answer() -> None:
    later = (*a_cloud().stockouts, Stockout(f"{US}-a", US, 110.0))
    assert report_on(replace(a_run(), cloud=replace(a_cloud(), stockouts=later))).ok


def test_worlds_within_one_region_are_told() -> None:
    at_home = {WorkerId(f"w{number}"): US for number in range(6)}
    assert "no world had workers in two regions" in failed(replace(a_cloud(), regions=at_home))


def test_pools_and_nodes_of_the_job_that_are_left_are_told() -> None:
    sentence = failed(replace(a_cloud(), pools_left=("tw-demo-1",), nodes_left=("node-7", "node-8")))
    assert "1 pools of the job were left: tw-demo-1" in sentence
    assert "2 nodes of the job were left: node-7, node-8" in sentence


def test_a_cloud_that_billed_nothing_is_told() -> None:
    assert "the cloud has no bill for the job" in failed(replace(a_cloud(), bill_micro_usd=0))


def test_a_ledger_that_disagrees_with_the_bill_is_told() -> None:
    sentence = "the ledger says 7.5000 USD for machines, the cloud's bill 7.6800 USD: more than 2 % apart"
    assert sentence in failed(replace(a_cloud(), cost=a_cost(7_500_000)))
    assert "the master did not tell what the job cost" in failed(replace(a_cloud(), cost=None))


def test_a_job_that_nobody_planned_is_told() -> None:
    assert "nothing was planned" in failed(replace(a_cloud(), decisions=()))
    assert "for no reason" in failed(replace(a_cloud(), decisions=(replace(PLANNED, why=""),)))


def event(at: float, kind: str, why: str = "", **fields: str | int) -> EventLine:
    return EventLine(at, "demo", kind, kind, why, {**fields})


EVENTS = [
    event(90.0, "pool_created", zone=f"{US}-a", size=4),
    event(99.0, "worker_joined", worker="w0", cluster="sim-us"),
    event(99.5, "worker_gone", "its pod was ended", worker="w9"),
    event(100.6, "worker_noticed", worker="w0"),
    event(100.9, "worker_gone", "released: no longer needed", worker="w0"),
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
    assert partings_in(EVENTS)[WorkerId("w0")] == Parting(100.9, "released: no longer needed")
    assert clusters_in(EVENTS) == {"w0": "sim-us"}
    assert asked_in(EVENTS) == [(f"{US}-a", 90.0), (f"{EUROPE}-a", 102.0)]
    assert stockouts_in(EVENTS) == [(f"{US}-b", 102.0)]
    planned = event(89.0, "planned", "the most steps", workers=4, lost_1="4 in europe-west4-a: 9 % dearer")
    assert decisions_in([*EVENTS, planned]) == (PlanTold("planned", "the most steps", PLANNED.lost),)


@pytest.mark.parametrize(
    ("taken", "sentence"),
    [
        ((LOST, UPGRADED, NOTICED), "no node stopped reporting"),
        ((replace(HUNG, renewed_at=None), LOST, UPGRADED, NOTICED), "node node-3 was not re-created"),
        ((HUNG, LOST, NOTICED), "no node was upgraded"),
        ((HUNG, LOST, replace(UPGRADED, renewed_at=None), NOTICED), "node node-4 was not re-created"),
        ((HUNG, LOST, replace(UPGRADED, worker=None), NOTICED), "no worker was told that node node-4 would be taken"),
    ],
)
def test_an_upgrade_or_a_repair_that_did_not_come_or_was_not_used_is_told(
    taken: tuple[Taken, ...], sentence: str
) -> None:
    losses = sum(not each.notice_s for each in taken)
    assert sentence in failed(replace(a_cloud(), taken=taken, losses=losses))


def test_a_node_that_the_master_gave_up_before_it_was_repaired_is_told() -> None:
    cloud = replace(a_cloud(), removals=(Removal(98.5, "removing node-3"), Removal(99.5, "removing node-3")))
    assert "node node-3 was removed before the cloud had re-created it: removing node-3" in failed(cloud)
