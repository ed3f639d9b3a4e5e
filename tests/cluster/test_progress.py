"""A controller gathers what its workers report of their steps."""

from agents.cluster import progress as gathering
from agents.cluster.progress import ProgressGatherer
from messages import subjects
from messages.ids import ClusterName, Generation, JobName, Rank, WorkerId
from messages.worlds import GatheredProgress, Progress, RankProgress
from tests.cluster.conftest import CLUSTER, JOB, Bench
from tests.conftest import eventually


def a_report(worker: str, job: str = JOB, ranks: int = 1) -> Progress:
    steps = tuple(RankProgress(Rank(rank), 0, 9) for rank in range(ranks))
    return Progress(JobName(job), WorkerId(worker), Generation(1), steps)


def gatherer_with(*reports: Progress) -> ProgressGatherer:
    gatherer = ProgressGatherer(CLUSTER)
    assert all(gatherer.add(report) for report in reports)
    return gatherer


def test_reports_of_a_job_make_one_message_in_the_order_in_which_they_came() -> None:
    first, second, other = a_report("b"), a_report("a"), a_report("c", job="other")
    gatherer = gatherer_with(first, other, second)
    assert list(gatherer.take()) == [
        GatheredProgress(JOB, CLUSTER, (first, second)),
        GatheredProgress(JobName("other"), CLUSTER, (other,)),
    ]
    assert list(gatherer.take()) == []


def test_a_message_has_a_bounded_number_of_ranks() -> None:
    reports = [a_report(f"w{number}", ranks=gathering.RANKS_AT_MOST // 2) for number in range(5)]
    huge = a_report("huge", ranks=2 * gathering.RANKS_AT_MOST)
    gathered = list(gatherer_with(*reports, huge).take())
    assert [len(message.reports) for message in gathered] == [2, 2, 1, 1]
    assert [report for message in gathered for report in message.reports] == [*reports, huge]


def test_the_number_of_reports_that_wait_is_bounded() -> None:
    gatherer = gatherer_with(*[a_report("w", ranks=0)] * gathering.REPORTS_AT_MOST)
    assert not gatherer.add(a_report("w"))
    assert sum(len(message.reports) for message in gatherer.take()) == gathering.REPORTS_AT_MOST
    assert gatherer.add(a_report("w"))


async def test_a_controller_sends_gathered_reports_and_drops_those_in_another_name(bench: Bench) -> None:
    heard: list[GatheredProgress] = []

    def on_progress(_subject: str, received: object) -> None:
        message = getattr(received, "message", None)
        assert isinstance(message, GatheredProgress)
        heard.append(message)

    await bench.bus.subscribe(subjects.progress(JOB), on_progress)
    await bench.start_and_hear()
    own, foreign = WorkerId("w1"), a_report("w2")
    bench.bus.publish(subjects.worker_progress(CLUSTER, own), foreign)
    bench.bus.publish(subjects.worker_progress(ClusterName("elsewhere"), own), a_report("w1"))
    bench.bus.publish(subjects.worker_progress(CLUSTER, own), a_report("w1", ranks=2))
    await eventually(lambda: heard, what="a gathered report")
    assert heard == [GatheredProgress(JOB, CLUSTER, (a_report("w1", ranks=2),))]
