"""What the state of a node or a pod means to us."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from agents.clouds.gke.cloud import CLOUD as GKE
from agents.clouds.interface import NodeTraits
from agents.cluster.kubernetes.observations import (
    STARTING,
    UNREPORTED,
    PodObservation,
    Stage,
    container_exited,
    pod_ended,
    read_node,
    read_pod,
)
from messages.clusters import CONTAINER_FAILURES, NodeObservation, StartFailure
from runtime.kubernetes.objects import Node, Pod

NOW = 1_800_000_000.0


def a_node(
    *,
    ready: str = "True",
    message: str = "",
    annotations: dict[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
    labels: dict[str, str] | None = None,
    boot: str = "",
    shutdown_grace_s: float = 30.0,
    unschedulable: bool = False,
    traits: NodeTraits = GKE.nodes,
) -> NodeObservation:
    node = {
        "metadata": {"name": "n1", "uid": "u1", "labels": labels, "annotations": annotations},
        "spec": {"taints": taints, "unschedulable": unschedulable},
        "status": {
            "conditions": [{"type": "Ready", "status": ready, "reason": "Because", "message": message}],
            "nodeInfo": {"bootID": boot},
        },
    }
    return read_node(msgspec.json.decode(msgspec.json.encode(node), type=Node), traits, NOW, shutdown_grace_s)


def a_pod(status: dict[str, Any], **metadata: Any) -> PodObservation:
    labels = {"tradewind-job": "story", "tradewind-uid": "w1x1"}
    pod = {
        "metadata": {"name": "w1x1", "uid": "p1", "labels": labels, **metadata},
        "spec": {"nodeName": "n1"},
        "status": status,
    }
    observation = read_pod(msgspec.json.decode(msgspec.json.encode(pod), type=Pod))
    assert observation is not None
    return observation


def containers(agent: dict[str, Any], host: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": "agent", "state": agent}, {"name": "host", "state": host}]


RUNNING: dict[str, Any] = {"running": {"startedAt": "2027-01-15T08:00:00Z"}}


def test_a_node_tells_its_pool_zone_job_and_whether_it_is_ready() -> None:
    labels = {
        "tradewind-pool": "spot",
        "topology.kubernetes.io/zone": "us-central1-a",
        "tradewind-job": "story",
    }
    observation = a_node(labels=labels)
    assert (observation.pool, observation.zone, observation.job, observation.ready, observation.why) == (
        "spot",
        "us-central1-a",
        "story",
        True,
        "",
    )
    assert a_node(labels={"tradewind-job": "No Name"}).job is None
    message = "Kubelet stopped posting node status."
    unready = a_node(ready="Unknown", message=message)
    assert (unready.ready, unready.why) == (False, f"Because: {message}")
    assert (unready.notice_s, unready.was_ready) == (None, True)
    starting = a_node(ready="False", message="container runtime network not ready")
    assert not starting.was_ready


def test_the_pool_of_a_node_is_the_one_that_the_cloud_names_where_we_did_not() -> None:
    google = {"cloud.google.com/gke-nodepool": "default-pool"}
    assert a_node(labels=google).pool == "default-pool"
    assert a_node(labels={**google, "tradewind-pool": "spot"}).pool == "spot"
    assert a_node(labels={}).pool == ""
    assert a_node(labels=google, traits=NodeTraits()).pool == ""


def test_a_cordon_counts_as_a_notice_from_which_the_node_may_come_back() -> None:
    observation = a_node(unschedulable=True)
    assert (observation.notice_s, observation.cordoned, observation.ready) == (60.0, True, True)


def test_a_notice_of_the_end_goes_before_a_cordon() -> None:
    taints = [{"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}]
    observation = a_node(taints=taints, unschedulable=True)
    assert observation.notice_s is not None and observation.notice_s < 60.0 and not observation.cordoned


def test_a_node_without_a_word_about_itself_is_not_ready() -> None:
    observation = read_node(msgspec.json.decode(b'{"metadata":{"name":"n1"}}', type=Node), GKE.nodes, NOW, 30.0)
    assert (observation.ready, observation.why) == (False, UNREPORTED)


@pytest.mark.parametrize(
    ("annotation", "notice_s"),
    [
        (str(NOW + 30), 30.0),
        (str(NOW - 5), 0.0),
        (str(NOW - 3600), None),
        ("soon", None),
        ("", None),
        ("nan", None),
        ("inf", 3600.0),
    ],
)
def test_a_deadline_on_a_node_is_a_notice_unless_it_is_stale_or_nonsense(
    annotation: str, notice_s: float | None
) -> None:
    assert a_node(annotations={"tradewind.dev/notice-deadline": annotation}).notice_s == notice_s


@pytest.mark.parametrize(("booted", "notice_s"), [("first", 3600.0), ("second", None), ("", 3600.0)])
def test_a_notice_is_for_the_machine_that_it_was_written_for_though_the_node_object_stays(
    booted: str, notice_s: float | None
) -> None:
    notice = {"tradewind.dev/notice-deadline": str(NOW + 3600), "tradewind.dev/notice-boot": "first"}
    assert a_node(annotations=notice, boot=booted).notice_s == notice_s


@pytest.mark.parametrize(
    ("announced_s", "grace_s", "notice_s"), [(3600, 30, 30.0), (20, 30, 20.0), (120, 120, 120.0), (None, 120, 120.0)]
)
def test_a_node_that_shuts_down_is_gone_when_its_grace_is_over_at_the_latest(
    announced_s: float | None, grace_s: float, notice_s: float
) -> None:
    notice = None if announced_s is None else {"tradewind.dev/notice-deadline": str(NOW + announced_s)}
    observation = a_node(annotations=notice, ready="False", message="node is shutting down", shutdown_grace_s=grace_s)
    assert observation.notice_s == notice_s


def test_a_node_that_shuts_down_or_is_marked_to_go_is_noticed() -> None:
    going = a_node(ready="False", message="node is shutting down")
    assert (going.notice_s, going.ready) == (30.0, False)
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
    assert a_node(taints=[taint]).notice_s == 30.0
    own = {"key": "cloud.google.com/impending-node-termination", "effect": "NoSchedule"}
    assert a_node(taints=[own]).notice_s == 30.0
    assert a_node(taints=[own], traits=NodeTraits()).notice_s is None
    assert a_node(taints=[{"key": "tradewind-job", "effect": "NoSchedule"}]).notice_s is None
    unhealthy = a_node(ready="False", message="PLEG is not healthy")
    assert unhealthy.notice_s is None


def test_a_pod_that_cannot_be_placed_waits_with_the_schedulers_reason() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    observation = a_pod({"phase": "Pending", "conditions": [condition]})
    assert (observation.stage, observation.why) == (Stage.WAITING, "Unschedulable: 0/3 nodes")


def test_a_worker_can_speak_when_its_agent_runs_whatever_its_host_waits_for() -> None:
    message = "Back-off pulling image"
    pulling = {"waiting": {"reason": "ImagePullBackOff", "message": message}}
    observation = a_pod({"phase": "Pending", "containerStatuses": containers(RUNNING, pulling)})
    assert (observation.stage, observation.why) == (Stage.RUNNING, f"host: ImagePullBackOff: {message}")
    observation = a_pod({"phase": "Pending", "containerStatuses": containers(pulling, RUNNING)})
    assert observation.stage is Stage.WAITING
    assert a_pod({"phase": "Pending"}).why == STARTING
    assert a_pod({"phase": "Running"}).stage is Stage.RUNNING


def test_how_a_pod_ended_is_told_by_the_container_that_explains_it() -> None:
    last_line = "lost its host"
    failed = {"terminated": {"exitCode": 1, "reason": "Error", "message": f"{last_line}\n\n"}}
    oom = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    observation = a_pod({"phase": "Failed", "containerStatuses": containers(failed, oom)})
    assert (observation.stage, observation.why) == (Stage.ENDED, container_exited("host", 137, "OOMKilled"))
    done = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    observation = a_pod({"phase": "Failed", "containerStatuses": containers(failed, done)})
    assert observation.why == container_exited("agent", 1, last_line=last_line)
    observation = a_pod({"phase": "Succeeded", "containerStatuses": containers(done, done)})
    assert observation.why == container_exited("agent", 0)


def test_a_pod_that_its_node_ended_says_so() -> None:
    message = "in response to imminent node shutdown"
    observation = a_pod({"phase": "Failed", "reason": "Terminated", "message": message})
    assert observation.why == pod_ended(f"Terminated: {message}")


def test_a_pod_whose_agent_has_ended_is_abandoned_by_what_is_left_of_it() -> None:
    gone = {"terminated": {"exitCode": 137, "reason": "Error"}}
    assert a_pod({"phase": "Running", "containerStatuses": containers(gone, RUNNING)}).stage is Stage.ABANDONED


def test_a_pod_whose_host_has_ended_is_hostless_and_says_how() -> None:
    gone = {"terminated": {"exitCode": 1, "reason": "Error", "message": "No module named torch\n"}}
    observation = a_pod({"phase": "Running", "containerStatuses": containers(RUNNING, gone)})
    expected = (Stage.HOSTLESS, "its container host exited with 1: No module named torch")
    assert (observation.stage, observation.why) == expected


def test_a_pod_that_is_being_deleted_tells_until_when() -> None:
    observation = a_pod({"phase": "Running"}, deletionTimestamp="2027-01-15T08:00:30Z")
    assert observation.deleted_at == datetime(2027, 1, 15, 8, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    "labels", [None, {}, {"tradewind-job": "story"}, {"tradewind-job": "story", "tradewind-uid": "another"}]
)
def test_a_pod_whose_labels_do_not_fit_is_not_ours(labels: dict[str, str] | None) -> None:
    pod = {"metadata": {"name": "w1x1", "labels": labels}}
    assert read_pod(msgspec.json.decode(msgspec.json.encode(pod), type=Pod)) is None


def waits(reason: str, message: str = "", image: str = "registry/trainer:1") -> dict[str, Any]:
    return {"name": "host", "image": image, "state": {"waiting": {"reason": reason, "message": message}}}


@pytest.mark.parametrize("reason", sorted(CONTAINER_FAILURES))
def test_a_container_that_the_kubelet_cannot_start_is_told_with_its_image_and_node(reason: str) -> None:
    agent = {"name": "agent", "state": RUNNING}
    observation = a_pod({"phase": "Pending", "containerStatuses": [agent, waits(reason, "403 Forbidden")]})
    assert observation.failure == StartFailure(reason, "403 Forbidden", "registry/trainer:1", "n1")


def test_the_image_of_an_init_container_counts_and_one_that_is_being_created_does_not_fail() -> None:
    main = [{"name": "agent", "state": {"waiting": {"reason": "PodInitializing"}}}]
    failing = a_pod({"phase": "Pending", "initContainerStatuses": [waits("ErrImagePull")], "containerStatuses": main})
    assert failing.failure is not None
    pulling = waits("ContainerCreating")
    assert a_pod({"phase": "Pending", "containerStatuses": [pulling]}).failure is None


def test_the_backoff_of_an_old_kubelet_has_no_detail_and_a_long_detail_keeps_its_end() -> None:
    silent = waits("ImagePullBackOff", 'Back-off pulling image "registry/trainer:1"')
    observation = a_pod({"phase": "Pending", "containerStatuses": [silent]})
    assert observation.failure is not None
    assert observation.failure.detail == ""
    long = waits("ErrImagePull", f"failed to pull {'x' * 1000}: 403 Forbidden")
    observation = a_pod({"phase": "Pending", "containerStatuses": [long]})
    assert observation.failure is not None
    assert observation.failure.detail.endswith("403 Forbidden")
    assert len(observation.failure.detail) < 500


def test_a_pod_that_no_node_has_room_for_fails_to_start_without_a_node() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
    pod = {
        "metadata": {"name": "w1x1", "uid": "p1", "labels": {"tradewind-job": "story", "tradewind-uid": "w1x1"}},
        "status": {"phase": "Pending", "conditions": [condition]},
    }
    observation = read_pod(msgspec.json.decode(msgspec.json.encode(pod), type=Pod))
    assert observation is not None
    assert observation.failure == StartFailure("Unschedulable", "0/2 nodes")
