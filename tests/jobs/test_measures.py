"""Measurements of a job's trainers, and when the planner receives them."""

from msgspec import structs

from controlplane.jobs.measures import LOOK_S, USE_S, Measures
from controlplane.throughput.measuring import WorkerPlace
from controlplane.throughput.use import NodeUse
from messages.ids import ClusterName, Generation, JobName, Rank, WorkerId
from messages.measured import StepsMeasured
from messages.worlds import Progress, RankProgress
from tests.specs import a_planned_spec, a_spec

US = ClusterName("us")
WORKERS = {WorkerId("a"), WorkerId("b")}
L4 = WorkerPlace(US, "node-a", "L4")


def a_report(sample_s: float = 0.01, worker: str = "a", steps: int = 100) -> Progress:
    measured = StepsMeasured(steps, 8.0, 0.2, 8 * sample_s, 0.02, 4096, 32)
    ranks = (RankProgress(Rank(0), 0, steps - 1, measured=measured),)
    return Progress(JobName("a-job"), WorkerId(worker), Generation(1), ranks)


def test_what_was_measured_is_told_once_and_again_when_it_is_news() -> None:
    measures, spec = Measures(), a_planned_spec("a-job", 4, least=1)
    measures.hear(a_report(0.01234), L4, 0.0)
    reported = measures.changes(spec, WORKERS, 0.0).profile
    assert reported is not None
    assert reported.compute["L4"].seconds_per_sample == 0.012
    assert (reported.gradient_bytes, reported.global_batch) == (4096, 32)
    for number in range(1, 4):
        measures.hear(a_report(0.0126), L4, number * LOOK_S)
        assert measures.changes(spec, WORKERS, number * LOOK_S).profile is None
    measures.hear(a_report(0.02), L4, 4 * LOOK_S)
    again = measures.changes(spec, WORKERS, 4 * LOOK_S).profile
    assert again is not None
    assert again.compute["L4"].seconds_per_sample == 0.02


def test_it_is_looked_at_now_and_then_not_with_every_report() -> None:
    measures, spec = Measures(), a_planned_spec("a-job", 4, least=1)
    measures.hear(a_report(steps=1), L4, 0.0)
    assert measures.changes(spec, WORKERS, 0.0).profile is None
    measures.hear(a_report(), L4, LOOK_S / 2)
    assert measures.changes(spec, WORKERS, LOOK_S / 2).profile is None
    assert measures.changes(spec, WORKERS, LOOK_S).profile is not None


def test_where_nobody_knows_the_accelerator_nobody_plans_by_it_but_people_see_it() -> None:
    measures = Measures()
    measures.hear(a_report(0.01), WorkerPlace(US, "node-a"), 0.0)
    assert measures.changes(a_planned_spec("a-job", 4, least=1), WORKERS, 0.0).profile is None
    shown = measures.profile(0.0)
    assert shown is not None
    assert shown.compute.keys() == {""}


def test_a_job_that_is_not_planned_has_no_news_for_anybody() -> None:
    measures = Measures()
    measures.hear(a_report(), L4, 0.0)
    found = measures.changes(a_spec("a-job"), WORKERS, 0.0)
    assert (found.profile, found.use) == (None, ())


def test_use_is_told_every_few_seconds_where_the_job_asks_for_some() -> None:
    measures, spec = Measures(), a_planned_spec("a-job", 4, least=1, min_utilisation=0.5)
    measures.hear(a_report(0.01), L4, 0.0)
    assert measures.changes(spec, WORKERS, 0.0).use == (NodeUse(US, "node-a", 0.8),)
    measures.hear(a_report(0.01), L4, 1.0)
    assert measures.changes(spec, WORKERS, 1.0).use == ()
    measures.hear(a_report(0.01), L4, USE_S)
    assert measures.changes(spec, WORKERS, USE_S).use == (NodeUse(US, "node-a", 0.8),)
    careless = Measures()
    careless.hear(a_report(0.01), L4, 0.0)
    assert careless.changes(a_planned_spec("a-job", 4, least=1), WORKERS, 0.0).use == ()


def test_a_worker_that_is_gone_says_nothing_of_its_node() -> None:
    measures, spec = Measures(), a_planned_spec("a-job", 4, least=1, min_utilisation=0.5)
    measures.hear(a_report(0.01, "gone"), WorkerPlace(US, "node-b", "L4"), 0.0)
    measures.hear(a_report(0.01), L4, 0.0)
    assert [each.node for each in measures.changes(spec, {WorkerId("a")}, 0.0).use] == ["node-a"]


def test_the_longest_step_is_that_of_the_slowest_worker_of_late() -> None:
    measures = Measures()
    assert measures.longest_step_s(WORKERS) == 0.0
    for worker, longest_s in (("a", 9.0), ("b", 4.0), ("a", 2.0)):
        report = a_report(worker=worker)
        reported = StepsMeasured(steps=1, longest_s=longest_s)
        measures.hear(structs.replace(report, ranks=(structs.replace(report.ranks[0], measured=reported),)), L4, 0.0)
    assert measures.longest_step_s(WORKERS) == 4.0
    assert measures.longest_step_s({WorkerId("a")}) == 2.0, "those that are gone no longer count"
