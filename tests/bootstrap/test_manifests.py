import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from agents.cluster.kubernetes.settings import read_kubernetes_settings
from agents.notice.settings import read_notice_settings
from controlplane.bootstrap.names import DIGEST_ANNOTATION
from controlplane.bootstrap.settings import BootstrapSettings, Secrets
from messages.labels import NATS_CREDENTIALS_KEY, NATS_URL_KEY
from runtime.kubernetes.paths import Manifest
from runtime.problems import problems
from tests.bootstrap.builders import (
    IMAGE,
    container_of,
    env_of,
    one,
    some_manifests,
    some_secrets,
    texts,
)

LEANEST = Secrets("nats://10.0.0.5:4222")
PASSED = " passed for resource "
"""What kubernetes-validate writes for each valid manifest."""


@pytest.mark.parametrize("version", ["1.31", "1.35", "1.37"])
def test_every_manifest_passes_the_schemas_of_kubernetes(version: str, tmp_path: Path) -> None:
    everything = [
        *some_manifests(pull_secrets=("registry",)),
        *some_manifests(LEANEST),
    ]
    file = tmp_path / "manifests.yaml"
    file.write_text(yaml.safe_dump_all(everything))
    validate = [sys.executable, "-m", "kubernetes_validate", "--strict", "-k", version, str(file)]

    checked = subprocess.run(validate, capture_output=True, text=True, timeout=60)

    assert checked.returncode == 0, checked.stderr
    assert (checked.stdout + checked.stderr).count(PASSED) == len(everything)


def test_everything_says_whose_it_is() -> None:
    for manifest in some_manifests(fleet="research"):
        labels = manifest["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "tradewind"
        assert labels["tradewind-fleet"] == "research"


def test_the_namespace_comes_first_and_what_runs_comes_last() -> None:
    kinds = [manifest["kind"] for manifest in some_manifests()]
    assert kinds[0] == "Namespace"
    assert kinds[-2:] == ["Deployment", "DaemonSet"]
    assert max(i for i, kind in enumerate(kinds) if kind.endswith("Role")) < kinds.index("RoleBinding")


def test_the_same_settings_give_the_same_manifests() -> None:
    assert some_manifests() == some_manifests()


def test_each_account_may_do_no_more_than_it_needs() -> None:
    found = some_manifests(namespace="training")
    rules = {manifest["metadata"]["name"]: manifest["rules"] for manifest in found if manifest["kind"].endswith("Role")}
    assert rules == {
        "cluster-controller": [
            {
                "apiGroups": [""],
                "resources": ["pods"],
                "verbs": ["create", "delete", "get", "list", "patch", "watch"],
            }
        ],
        "tradewind:training:cluster-controller": [
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}
        ],
        "tradewind:training:notice": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}],
    }
    bound = {
        (subject["namespace"], subject["name"])
        for manifest in found
        if manifest["kind"].endswith("Binding")
        for subject in manifest["subjects"]
    }
    assert bound == {("training", "cluster-controller"), ("training", "notice")}
    assert one(found, "ServiceAccount", "worker")["automountServiceAccountToken"] is False


def test_secrets_are_in_secrets_only() -> None:
    plain = [text for manifest in some_manifests() if manifest["kind"] != "Secret" for text in texts(manifest)]
    for secret in ("password", "a seed"):
        assert not [text for text in plain if secret in text]
    assert "password" not in repr(some_secrets())


def test_what_was_not_given_is_not_made() -> None:
    found = some_manifests(LEANEST)
    assert [each["metadata"]["name"] for each in found if each["kind"] == "Secret"] == ["bus"]
    assert list(one(found, "Secret", "bus")["data"]) == ["nats-url"]
    assert "TRADEWIND_NATS_CREDENTIALS" not in env_of(one(found, "Deployment"))


def test_one_controller_at_a_time_that_is_on_no_node_of_a_job() -> None:
    deployment = one(some_manifests(), "Deployment")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert container_of(deployment)["command"] == ["python", "-m", "agents.cluster.kubernetes"]
    assert _job_operator(deployment) == "DoesNotExist"


def test_the_notice_is_on_every_node_of_a_job_and_sees_its_metadata() -> None:
    daemons = one(some_manifests(), "DaemonSet")
    pod = daemons["spec"]["template"]["spec"]
    assert pod["hostNetwork"] is True
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert container_of(daemons)["command"] == ["python", "-m", "agents.notice"]
    node = {"name": "TRADEWIND_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    assert [each for each in container_of(daemons)["env"] if "valueFrom" in each] == [node]
    assert _job_operator(daemons) == "Exists"


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_nothing_runs_as_root_or_writes_to_its_image(kind: str) -> None:
    workload = one(some_manifests(), kind)
    assert workload["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"] is True
    assert container_of(workload)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_selectors_name_nothing_that_could_ever_change(kind: str) -> None:
    before, after = one(some_manifests(), kind), one(some_manifests(LEANEST, fleet="other", image="other"), kind)
    assert before["spec"]["selector"] == after["spec"]["selector"]
    labels = after["spec"]["template"]["metadata"]["labels"]
    assert after["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_the_controller_understands_what_it_is_told() -> None:
    taints = ("team=ml:NoSchedule", "example.com/a=:NoExecute")
    found = some_manifests(
        namespace="training",
        pull_secrets=("registry",),
        pull_policy="Always",
        node_taints=taints,
        shutdown_grace_s=120,
    )
    settings = read_kubernetes_settings(env_of(one(found, "Deployment")))
    assert [taint.key for taint in settings.taints] == ["team", "example.com/a"]
    assert settings.shutdown_grace_s == 120
    reported = env_of(one(found, "DaemonSet"))["TRADEWIND_NOTICE_S"]
    assert read_notice_settings({"TRADEWIND_NODE": "n1", "TRADEWIND_NOTICE_S": reported}).notice_s == 120
    assert settings.cluster == "tw-us-central1"
    assert settings.cloud == "gke"
    assert settings.region == "us-central1"
    assert settings.namespace == "training"
    assert settings.image == IMAGE
    assert settings.pull_policy == "Always"
    assert settings.pull_secret_names == ("registry",)
    assert settings.worker_account == "worker"
    assert settings.bus_secret == "bus"
    assert settings.nats_credentials == "/etc/tradewind/nats.creds"


def test_workers_find_in_the_secret_of_the_bus_what_they_look_for() -> None:
    keys = one(some_manifests(), "Secret", "bus")["data"].keys()
    assert keys == {NATS_URL_KEY, NATS_CREDENTIALS_KEY}


def test_another_password_starts_other_pods_and_nothing_else_does() -> None:
    def digest(found: tuple[Manifest, ...]) -> str:
        text: str = one(found, "Deployment")["spec"]["template"]["metadata"]["annotations"][DIGEST_ANNOTATION]
        return text

    assert digest(some_manifests()) == digest(some_manifests(image="other"))
    assert digest(some_manifests()) != digest(some_manifests(some_secrets(nats_url="nats://bus:other@10.0.0.5:4222")))


def test_two_fleets_in_one_cluster_share_no_role() -> None:
    def wide(namespace: str) -> set[str]:
        found = some_manifests(namespace=namespace)
        return {each["metadata"]["name"] for each in found if "namespace" not in each["metadata"]}

    assert not wide("one") & wide("two")


def test_settings_that_no_cluster_would_take_are_told_one_by_one() -> None:
    given = {"fleet": "Research!", "image": "", "namespace": "a_b", "controller_memory": "much", "pull_policy": "Now"}
    assert {problem.path for problem in problems(BootstrapSettings, given)} == set(given)


def _job_operator(workload: Manifest) -> str:
    affinity = workload["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (expression,) = term["matchExpressions"]
    assert expression["key"] == "tradewind-job"
    operator: str = expression["operator"]
    return operator
