"""Subjects are built and parsed by the same rules."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages import subjects
from messages.ids import ClusterName, JobName, Rank, WorkerId, is_name
from tests.messages.strategies import NAMES

CLUSTER = ClusterName("local")
WORKER = WorkerId("w3f9a2c1-7d2e")
JOB = JobName("mnist")
NOT_NAMES = ["", "A", "a.b", "a b", "*", ">", "-a", "a-", "a" * 64, "ä", "\na", "a/b", "a_b"]


@given(NAMES, NAMES, st.sampled_from([*subjects.WORKER_FACTS]))
def test_what_a_worker_tells_is_read_back_from_its_subject(cluster: str, worker: str, fact: str) -> None:
    subject = subjects.worker_fact(ClusterName(cluster), WorkerId(worker), fact)
    assert subjects.parse_worker(subject) == (cluster, worker, fact)


@given(NAMES, NAMES)
def test_heartbeats_and_commands_of_a_worker_are_read_back_too(cluster: str, worker: str) -> None:
    beat = subjects.worker_heartbeat(ClusterName(cluster), WorkerId(worker))
    command = subjects.worker_command(ClusterName(cluster), WorkerId(worker))
    assert subjects.parse_worker(beat) == (cluster, worker, "heartbeat")
    assert subjects.parse_worker(command) == (cluster, worker, "command")


@given(NAMES)
def test_clusters_jobs_and_keys_are_read_back(name: str) -> None:
    cluster, job = ClusterName(name), JobName(name)
    assert subjects.parse_cluster(subjects.cluster_heartbeat(cluster)) == name
    assert subjects.parse_cluster(subjects.cluster_command(cluster)) == name
    assert subjects.parse_spec_key(subjects.spec_key(job)) == name
    for build in (subjects.assignment, subjects.halt, subjects.release, subjects.progress):
        assert subjects.parse_job(build(job)) == name
    assert subjects.parse_job(subjects.log(job, Rank(3))) == name


def test_without_a_name_the_subject_matches_all() -> None:
    assert subjects.worker_fact(None, None, "joined") == "tradewind.worker.*.*.joined"
    assert subjects.worker_heartbeat(CLUSTER) == "tradewind.worker.local.*.heartbeat"
    assert subjects.cluster_heartbeat() == "tradewind.cluster.*.heartbeat"
    assert subjects.assignment() == "tradewind.job.*.assignment"
    assert subjects.log(JOB) == "tradewind.job.mnist.log.*"
    assert subjects.event() == "tradewind.event.*.*"
    assert subjects.JOB_SPECS == "jobs.*.spec"


@pytest.mark.parametrize(
    "subject",
    [
        "tradewind.worker.*.*.joined",
        "tradewind.worker.local.w1",
        "tradewind.worker.local.w1.joined.late",
        "other.worker.local.w1.joined",
        "tradewind.cluster.local.w1.joined",
        "tradewind.worker.LOCAL.w1.joined",
        "",
        ".",
    ],
)
def test_what_is_not_a_workers_subject_is_not_read_as_one(subject: str) -> None:
    assert subjects.parse_worker(subject) is None


@pytest.mark.parametrize("subject", ["tradewind.cluster.*.heartbeat", "tradewind.cluster.local", "tradewind", ""])
def test_what_is_not_a_clusters_subject_is_not_read_as_one(subject: str) -> None:
    assert subjects.parse_cluster(subject) is None


def test_what_is_neither_a_jobs_subject_nor_key_is_not_read_as_one() -> None:
    assert subjects.parse_job("tradewind.job.*.halt") is None
    assert subjects.parse_job("tradewind.job.mnist") is None
    assert subjects.parse_spec_key("jobs.mnist.world") is None
    assert subjects.parse_spec_key("jobs.Mnist.spec") is None


@given(st.text(max_size=40))
def test_taking_apart_never_raises(text: str) -> None:
    for parse in (subjects.parse_worker, subjects.parse_cluster, subjects.parse_job, subjects.parse_spec_key):
        parse(text)
    assert subjects.parse_worker(f"x.{text}") is None


@pytest.mark.parametrize("name", NOT_NAMES)
def test_what_cannot_be_a_token_is_refused(name: str) -> None:
    builders: list[Callable[[], str]] = [
        lambda: subjects.cluster_command(ClusterName(name)),
        lambda: subjects.worker_heartbeat(CLUSTER, WorkerId(name)),
        lambda: subjects.worker_fact(ClusterName(name), WORKER, "joined"),
        lambda: subjects.assignment(JobName(name)),
        lambda: subjects.event(name),
        lambda: subjects.spec_key(JobName(name)),
        lambda: subjects.known_key(ClusterName(name)),
    ]
    assert not is_name(name)
    for build in builders:
        with pytest.raises(ValueError, match=re.escape(repr(name))):
            build()


def test_unknown_facts_and_strange_event_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="not a fact"):
        subjects.worker_fact(CLUSTER, WORKER, "vanished")
    with pytest.raises(ValueError, match=r"'a\.b'"):
        subjects.event("fleet", "a.b")


@pytest.mark.parametrize("name", ["a", "0", "a-b", "a" * 63])
def test_names_that_can_be_tokens_are_names(name: str) -> None:
    assert is_name(name)
