"""When a cluster is created, removed, waited for or set up again."""

from dataclasses import replace

import pytest

from controlplane.capacity.upkeep_policy import SILENCE_FIRST_S, SILENCE_MOST_S, Watch, next_step
from controlplane.clouds.interface import ClusterInfo, ClusterPlan, ClusterStatus, system_pool
from messages.ids import ClusterName
from messages.labels import FLEET_LABEL

NAME = ClusterName("us")
OURS = {FLEET_LABEL: "a-fleet"}
PLAN = ClusterPlan(NAME, "us-central1-a", system_pool("us-central1-a", "e2-small", 1), OURS)
RUNNING = ClusterInfo(NAME, "us-central1-a", True, OURS, status=ClusterStatus.RUNNING)


@pytest.mark.parametrize(
    ("listed", "wanted"),
    [
        (None, "create"),
        (RUNNING, "use"),
        (replace(RUNNING, ready=False, status=ClusterStatus.PROVISIONING), "wait"),
        (replace(RUNNING, ready=False, status=ClusterStatus.ERROR), "remove"),
        (replace(RUNNING, ready=False, status=ClusterStatus.ERROR, labels={}), "wait"),
    ],
)
def test_a_cluster_is_made_once_and_removed_only_if_its_creation_failed_and_it_is_ours(
    listed: ClusterInfo | None, wanted: str
) -> None:
    assert next_step(PLAN, listed).do == wanted


def test_a_controller_that_was_never_heard_is_given_more_time_after_each_installation() -> None:
    watch, silences_s = Watch(100.0), []
    for _ in range(7):
        silences_s.append(watch.silence_s)
        watch = watch.again(None, 100.0)
    assert (silences_s[:3], silences_s[-1]) == ([30.0, 60.0, 120.0], SILENCE_MOST_S)


def test_silence_counts_from_the_last_word_or_from_the_installation() -> None:
    watch = Watch(100.0)
    assert (watch.silent_at_s(None), watch.silent_at_s(90.0), watch.silent_at_s(150.0)) == (130.0, 130.0, 180.0)
    assert watch.again(150.0, 200.0) == Watch(200.0, SILENCE_FIRST_S)
