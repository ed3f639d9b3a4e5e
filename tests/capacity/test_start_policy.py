"""Workers that cannot start: which failures count, when, and how they are explained."""

import pytest
from msgspec import structs

from controlplane.capacity.start_policy import (
    LIKELY_AFTER_S,
    SURE_AFTER_S,
    UNSCHEDULABLE_AFTER_S,
    Cause,
    Starts,
    cause_of,
    explain,
)
from messages.clusters import ClusterHeartbeat, NodeObservation, Presence, StartFailure, WorkerObservation
from messages.ids import WorkerId
from messages.workers import WorkerPhase
from tests.capacity.builders import JOB, US, a_worker

IMAGE = "europe-west4-docker.pkg.dev/acme/images/trainer:1"
FORBIDDEN = f'failed to resolve reference "{IMAGE}": failed to authorize: failed to fetch oauth token: 403 Forbidden'
MISSING_SECRET = 'secret "keys" not found'
UNAVAILABLE = f'failed to resolve reference "{IMAGE}": unexpected status from HEAD request: 503 Service Unavailable'


def a_failure(detail: str = FORBIDDEN, *, for_s: float = 60.0, node: str = "n1", reason: str = "") -> StartFailure:
    return StartFailure(reason or "ErrImagePull", detail, IMAGE, node, for_s)


def a_stuck_worker(failure: StartFailure, name: str = "w1-0000") -> WorkerObservation:
    return WorkerObservation(WorkerId(name), JOB, Presence.STARTING, start_failure=failure)


def a_topology(*workers: WorkerObservation, nodes: tuple[str, ...] = ("n1",)) -> ClusterHeartbeat:
    observations = tuple(NodeObservation(name, job=JOB, pool="p") for name in nodes)
    return ClusterHeartbeat(US, "abc", 1, workers=workers, nodes=observations)


def grant(image: str) -> str:
    return f"grant access to {image}"


def some_starts() -> Starts:
    return Starts(JOB, grant)


@pytest.mark.parametrize(
    ("detail", "cause"),
    [
        (FORBIDDEN, Cause.FORBIDDEN),
        ("pulling from host gcr.io failed with status code [manifests 1]: 403 Forbidden", Cause.FORBIDDEN),
        ('denied: Permission "artifactregistry.repositories.downloadArtifacts" denied on resource', Cause.FORBIDDEN),
        ("pull access denied, repository does not exist or may require authorization", Cause.FORBIDDEN),
        (f"{IMAGE}: not found", Cause.MISSING),
        ("manifest unknown", Cause.MISSING),
        ("docker.io/geoffrey/train:1: not found", Cause.MISSING),
        ("failed to pull and unpack image: no match for platform in manifest: not found", Cause.OTHER_PLATFORM),
        (UNAVAILABLE, Cause.OTHER),
        ("failed to authorize: failed to fetch oauth token: 502 Bad Gateway", Cause.OTHER),
        ("failed to do request: dial tcp: i/o timeout", Cause.OTHER),
        ("429 Too Many Requests", Cause.OTHER),
        ("failed to authorize: dial tcp: lookup us-docker.pkg.dev: no such host", Cause.OTHER),
        ("", Cause.OTHER),
    ],
)
def test_the_runtimes_words_tell_the_cause(detail: str, cause: Cause) -> None:
    assert cause_of(a_failure(detail)) is cause


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("InvalidImageName", Cause.BAD_NAME),
        ("ErrImageNeverPull", Cause.BAD_NAME),
        ("CreateContainerConfigError", Cause.OTHER),
        ("Unschedulable", Cause.UNSCHEDULABLE),
    ],
)
def test_reasons_that_need_no_words_tell_the_cause(reason: str, cause: Cause) -> None:
    assert cause_of(a_failure(MISSING_SECRET, reason=reason)) is cause


def test_a_denied_image_is_told_with_what_to_grant() -> None:
    detail, hint = explain(a_failure(), grant)
    assert IMAGE in detail and detail.endswith("(403 Forbidden)"), "only the last error of the chain"
    assert hint == grant(IMAGE)


def test_a_denied_image_of_another_registry_asks_for_a_pull_secret() -> None:
    assert "`pods.pull_secrets`" in explain(a_failure(), lambda image: "")[1]


def test_a_backoff_is_told_without_its_wrapping() -> None:
    wrapped = f'Back-off pulling image "{IMAGE}": ErrImagePull: rpc error: code = Unknown desc = {UNAVAILABLE}'
    failure = structs.replace(a_failure(wrapped), reason="ImagePullBackOff")
    assert explain(failure, str) == explain(a_failure(UNAVAILABLE), str)


def test_a_missing_secret_is_told_by_its_name() -> None:
    detail, hint = explain(a_failure(MISSING_SECRET, reason="CreateContainerConfigError"), str)
    assert f"CreateContainerConfigError: {MISSING_SECRET}" in detail and IMAGE not in detail
    assert "`pods.namespace`" in hint


def test_a_missing_permission_counts_soon_and_an_outage_of_the_registry_not_within_the_first_minute() -> None:
    def failing(failure: StartFailure) -> bool:
        return some_starts().see(a_topology(a_stuck_worker(failure)), 0.0) is not None

    assert not failing(a_failure(for_s=SURE_AFTER_S - 1))
    assert failing(a_failure(for_s=SURE_AFTER_S))
    assert LIKELY_AFTER_S > 60.0
    assert not failing(a_failure(UNAVAILABLE, for_s=LIKELY_AFTER_S - 1))
    assert failing(a_failure(UNAVAILABLE, for_s=LIKELY_AFTER_S))


def test_nodes_are_told_on_which_workers_fail_and_on_which_they_have_started() -> None:
    waiting_for_its_host = structs.replace(
        a_worker("w2-aaaa", "n2", WorkerPhase.WARMING), start_failure=a_failure(node="n2")
    )
    others = a_worker("w3-aaaa", "n3", WorkerPhase.IDLE), a_worker("w4-aaaa", "n4", WorkerPhase.WARMING)
    seen = some_starts().see(a_topology(a_stuck_worker(a_failure()), waiting_for_its_host, *others), 7.0)
    assert seen is not None
    assert dict(seen.failing).keys() == {"n1", "n2"}
    assert seen.started == {"n3"}
    assert seen.hint == grant(IMAGE)


def test_a_pod_without_room_counts_only_if_a_ready_node_stays_unused_for_long() -> None:
    starts, waiting = some_starts(), a_stuck_worker(StartFailure("Unschedulable", "Insufficient memory", for_s=900.0))
    assert starts.see(a_topology(waiting, nodes=()), 0.0) is None
    assert starts.see(a_topology(waiting), 10.0) is None
    assert starts.see(a_topology(waiting), 10.0 + UNSCHEDULABLE_AFTER_S - 1) is None
    seen = starts.see(a_topology(waiting), 10.0 + UNSCHEDULABLE_AFTER_S)
    assert seen is not None
    assert dict(seen.failing) == {"n1": UNSCHEDULABLE_AFTER_S}
    assert "Insufficient memory" in seen.detail


def test_a_node_that_a_worker_uses_or_may_use_is_not_unused() -> None:
    starts, waiting = some_starts(), a_stuck_worker(StartFailure("Unschedulable", for_s=900.0), "w2-0000")
    unsure = WorkerObservation(WorkerId("w3-0000"), JOB, Presence.STARTING)
    for others in ([a_worker("w1-aaaa", "n1")], [unsure]):
        starts.see(a_topology(waiting, *others), 0.0)
        assert starts.see(a_topology(waiting, *others), UNSCHEDULABLE_AFTER_S) is None


def test_once_a_worker_could_not_start_the_allocator_hears_how_the_cluster_continues() -> None:
    starts, recovered = some_starts(), a_worker("w1-aaaa", "n1", WorkerPhase.IDLE)
    assert starts.see(a_topology(recovered), 0.0) is None
    assert starts.see(a_topology(a_stuck_worker(a_failure())), 1.0) is not None

    seen = starts.see(a_topology(recovered), 2.0)

    assert seen is not None
    assert not seen.failing
    assert seen.started == {"n1"}
