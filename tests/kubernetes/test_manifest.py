"""From a template to the pod of one worker."""

from typing import Any

import pytest

from agents.clouds.interface import NodeTraits
from agents.cluster.kubernetes.main import plan_of
from agents.cluster.kubernetes.manifest import PodPlan, worker_pod
from agents.cluster.kubernetes.settings import KubernetesSettings, read_kubernetes_settings
from messages.clusters import WorkerTemplate
from messages.ids import ClusterName, JobName
from messages.jobs import Pod
from runtime.errors import UserError

JOB = JobName("story")


def a_plan(**changed: Any) -> PodPlan:
    given: dict[str, Any] = {
        "cluster": ClusterName("here"),
        "namespace": "tradewind",
        "image": "ours:1",
        "worker_argv": ("python", "-m", "tradewind", "worker"),
        "host_package": "/ours/tradewind",
        "nodes": NodeTraits(),
        "nats_url": "nats://bus:4222",
    }
    return PodPlan(**{**given, **changed})


def env_of(container: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


def test_a_pod_is_found_by_its_labels_and_goes_only_where_its_job_may() -> None:
    pod = worker_pod(a_plan(), "w1x1", JOB, WorkerTemplate())
    assert pod["metadata"]["name"] == "w1x1"
    assert pod["metadata"]["labels"] == {
        "app": "tradewind-worker",
        "tradewind-job": "story",
        "tradewind-uid": "w1x1",
        "app.kubernetes.io/managed-by": "tradewind",
    }
    spec = pod["spec"]
    assert spec["nodeSelector"] == {"tradewind-job": "story"}
    assert spec["tolerations"] == [
        {"key": "tradewind-job", "operator": "Equal", "value": "story", "effect": "NoSchedule"},
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    ]
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Never", 30)
    assert spec["automountServiceAccountToken"] is False


def test_the_agent_is_told_who_and_where_it_is_and_nothing_of_the_job() -> None:
    template = WorkerTemplate(slots=4, env={"SECRET_SAUCE": "1"})
    agent, host = worker_pod(a_plan(region="us-central1"), "w1x1", JOB, template)["spec"]["containers"]
    assert agent["command"] == [
        *("python", "-m", "tradewind", "worker", "--job", "story", "--cluster", "here", "--uid", "w1x1"),
        *("--slots", "4", "--run-dir", "/run/tradewind", "--external-host"),
    ]
    env = env_of(agent)
    assert env["TRADEWIND_NATS_URL"] == "nats://bus:4222"
    assert env["TRADEWIND_REGION"] == "us-central1"
    assert env["TRADEWIND_ADDRESS"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert env["TRADEWIND_NODE"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert "TRADEWIND_ZONE" not in env, "the controller knows it from the node"
    assert "SECRET_SAUCE" not in env
    assert env_of(host) == {"SECRET_SAUCE": "1"}


def test_a_job_without_an_image_is_hosted_by_ours() -> None:
    spec = worker_pod(a_plan(), "w1x1", JOB, WorkerTemplate(python="/usr/bin/python3.12"))["spec"]
    host = spec["containers"][1]
    assert "initContainers" not in spec
    assert host["image"] == "ours:1"
    assert host["command"][:4] == [
        "/usr/bin/python3.12",
        "/ours/tradewind/host/__main__.py",
        "--socket",
        "/run/tradewind/w1x1/host.sock",
    ]


def test_a_job_with_an_image_of_its_own_gets_the_hosts_files_copied_into_it() -> None:
    spec = worker_pod(a_plan(), "w1x1", JOB, WorkerTemplate(pod=Pod(image="theirs:1")))["spec"]
    [copying] = spec["initContainers"]
    host = spec["containers"][1]
    assert copying["image"] == "ours:1"
    assert "cp -R /ours/tradewind /run/tradewind/code/" in copying["command"][-1]
    assert host["image"] == "theirs:1"
    assert host["command"][:2] == ["python", "/run/tradewind/code/tradewind/host/__main__.py"]


def test_a_host_has_what_its_trainers_need() -> None:
    pod = Pod(cpu="7", memory="30Gi", gpu=True, secrets=("keys", "more"))
    plan = a_plan(nodes=NodeTraits(driver_folder="/driver"))
    host = worker_pod(plan, "w1x1", JOB, WorkerTemplate(slots=8, pod=pod))["spec"]["containers"][1]
    assert host["resources"] == {
        "requests": {"cpu": "7", "memory": "30Gi"},
        "limits": {"nvidia.com/gpu": "8"},
    }
    assert host["envFrom"] == [{"secretRef": {"name": "keys"}}, {"secretRef": {"name": "more"}}]
    assert {mount["mountPath"] for mount in host["volumeMounts"]} == {"/run/tradewind", "/dev/shm"}
    assert env_of(host) == {"TRADEWIND_DRIVER_FOLDER": "/driver", "TRADEWIND_GPUS": "8"}


def test_a_dollar_in_the_jobs_environment_stays_one() -> None:
    host = worker_pod(a_plan(), "w1x1", JOB, WorkerTemplate(env={"A": "$(HOME) $5"}))["spec"]["containers"][1]
    assert env_of(host) == {"A": "$$(HOME) $$5"}


def test_the_bus_is_read_from_its_secret_where_there_is_one() -> None:
    plan = a_plan(bus_secret="bus", has_credentials=True, pull_secrets=("pull",))
    spec = worker_pod(plan, "w1x1", JOB, WorkerTemplate())["spec"]
    agent = spec["containers"][0]
    env = env_of(agent)
    assert env["TRADEWIND_NATS_URL"] == {"secretKeyRef": {"name": "bus", "key": "nats-url"}}
    assert env["TRADEWIND_NATS_CREDENTIALS"] == "/etc/tradewind/nats.creds"
    assert any(mount["mountPath"] == "/etc/tradewind" for mount in agent["volumeMounts"])
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert any(volume.get("secret", {}).get("secretName") == "bus" for volume in spec["volumes"])


def test_the_plan_is_what_the_settings_say() -> None:
    settings = KubernetesSettings(
        cluster="here", image="ours:2", pull_secrets="a, b", bus_secret="bus", nats_credentials="/etc/creds"
    )
    plan = plan_of(settings)
    assert (plan.image, plan.pull_secrets, plan.has_credentials) == ("ours:2", ("a", "b"), True)
    assert plan.worker_argv == ("python", "-P", "-m", "tradewind", "worker")
    assert plan.host_package.endswith("tradewind")
    assert plan_of(KubernetesSettings(cluster="here", host_file="/x/tradewind/host/__main__.py")).host_package == (
        "/x/tradewind"
    )


def test_workers_tolerate_the_taints_of_the_fleet() -> None:
    plan = plan_of(KubernetesSettings(cluster="here", node_taints="team=ml:NoSchedule,example.com/a=:NoExecute"))
    assert worker_pod(plan, "w1x1", JOB, WorkerTemplate())["spec"]["tolerations"][2:] == [
        {"operator": "Equal", "key": "team", "value": "ml", "effect": "NoSchedule"},
        {"operator": "Equal", "key": "example.com/a", "value": "", "effect": "NoExecute"},
    ]
    for wrong in ("team", "team:NoSchedule", "a=b:Never", "a=b=c:NoExecute"):
        with pytest.raises(UserError, match="TRADEWIND_NODE_TAINTS"):
            read_kubernetes_settings({"TRADEWIND_CLUSTER": "here", "TRADEWIND_NODE_TAINTS": wrong})


@pytest.mark.parametrize(("grace_s", "notice_s", "end_s"), [(30, "15", 20.0), (120, "105", 110.0)])
def test_the_grace_of_nodes_is_that_of_pods_and_leaves_agents_what_the_system_does_not_need(
    grace_s: int, notice_s: str, end_s: float
) -> None:
    settings = KubernetesSettings(cluster="here", shutdown_grace_s=grace_s)
    spec = worker_pod(plan_of(settings), "w1x1", JOB, WorkerTemplate())["spec"]
    assert spec["terminationGracePeriodSeconds"] == grace_s
    assert env_of(spec["containers"][0])["TRADEWIND_NOTICE_S"] == notice_s
    assert settings.end_within_s == end_s


def test_settings_come_from_the_environment() -> None:
    environ = {"TRADEWIND_CLUSTER": "here", "KUBECONFIG": "/a", "TRADEWIND_IMAGE": "ours:3"}
    assert read_kubernetes_settings(environ).kubeconfig == "/a"
    assert read_kubernetes_settings({**environ, "TRADEWIND_KUBECONFIG": "/b"}).kubeconfig == "/b"
    assert read_kubernetes_settings(environ).image == "ours:3"
    with pytest.raises(UserError) as mistake:
        read_kubernetes_settings({"TRADEWIND_PULL_POLICY": "Sometimes"})
    assert "TRADEWIND_CLUSTER" in str(mistake.value)
    assert "TRADEWIND_PULL_POLICY" in str(mistake.value)
