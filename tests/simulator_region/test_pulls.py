"""Image pulls that fail as a kubelet reports them, and succeed when the reason is gone."""

from typing import Any

import pytest

from simulator.kubelet.images import ImageRuntime, Pull, PullFailed, back_off_state, pull_failure
from tests.simulator_region.conftest import CLUSTER, Bench, a_bench, a_node

OURS = "europe-west4-docker.pkg.dev/acme/images/tradewind:1"
PUBLIC = "python:3.11-slim"
DIGEST = "sha256:" + "0" * 64


def waiting(pod: Any) -> Any:
    (status,) = pod.status.container_statuses or [None]
    return status.state.waiting if status is not None else None


async def until_waits(bench: Bench, name: str, reason: str) -> str:
    pod = await bench.until_pod(name, lambda pod: (found := waiting(pod)) is not None and found.reason == reason)
    return str(waiting(pod).message)


async def test_a_failed_pull_is_reported_backs_off_and_heals_with_the_roles_of_the_node_account() -> None:
    async with a_bench(pull_backoff_s=0.2, roleless_accounts="default") as bench:
        await bench.node("node-1")
        await bench.pod("ours", "true", container={"image": OURS})
        await bench.pod("public", "true", container={"image": PUBLIC})
        failed = PullFailed("ErrImagePull", await until_waits(bench, "ours", "ErrImagePull"))
        assert "403" in failed.message
        assert await until_waits(bench, "ours", "ImagePullBackOff") == back_off_state(OURS, failed).message
        await bench.until_phase("public", "Succeeded")
        url, granted = f"{bench.region.url}/region/roles", {"account": "default", "granted": True}
        async with bench.session.post(url, json=granted) as answer:
            assert answer.ok
        await bench.until_phase("ours", "Succeeded")


async def test_a_node_with_another_account_pulls_what_the_default_account_cannot() -> None:
    async with a_bench(roleless_accounts="default") as bench:
        node = a_node()
        own = type(node)(instance_id="i", service_account="nodes@acme.iam.gserviceaccount.com")
        await bench.region.clusters.put_node(CLUSTER, "node-1", own)
        await bench.pod("ours", "true", container={"image": OURS})
        await bench.until_phase("ours", "Succeeded")


async def test_an_init_container_whose_image_is_missing_keeps_the_pod_pending() -> None:
    async with a_bench(images={"absent/*": ImageRuntime(pull=Pull.MISSING)}) as bench:
        await bench.node("node-1")
        init = [{"name": "first", "image": "absent/one:1", "command": ["true"]}]
        await bench.pod("held", "true", initContainers=init)

        def fails(pod: Any) -> bool:
            statuses = pod.status.init_container_statuses or []
            return any(each.state.waiting and each.state.waiting.reason == "ErrImagePull" for each in statuses)

        pod = await bench.until_pod("held", fails)
        assert pod.status.phase == "Pending"


@pytest.mark.parametrize(
    ("image", "pull", "reason", "text"),
    [
        ("registry.example.com/a:1", Pull.FORBIDDEN, "ErrImagePull", "failed to authorize"),
        ("registry.example.com/a:1", Pull.MISSING, "ErrImagePull", "registry.example.com/a:1: not found"),
        ("registry.example.com/a:1", Pull.OTHER_PLATFORM, "ErrImagePull", "no match for platform in manifest"),
        ("trainer", Pull.UNAVAILABLE, "ErrImagePull", "registry-1.docker.io/v2/library/trainer/manifests/latest: 503"),
        ("trainer", Pull.MISSING, "ErrImagePull", 'unpack image "docker.io/library/trainer:latest": failed'),
        ("acme/a:1", Pull.MISSING, "ErrImagePull", " docker.io/acme/a:1: not found"),
        (f"gcr.io/a:1@{DIGEST}", Pull.MISSING, "ErrImagePull", f" gcr.io/a@{DIGEST}: not found"),
        (OURS, Pull.FORBIDDEN, "ErrImagePull", "?scope=repository%3Aacme%2Fimages%2Ftradewind%3Apull&service=europe-"),
        ("Registry/Upper Case", Pull.WORKS, "InvalidImageName", "invalid reference format"),
        ("acme//a", Pull.WORKS, "InvalidImageName", "invalid reference format"),
        ("acme/a..b", Pull.WORKS, "InvalidImageName", "invalid reference format"),
        ("acme/a___b", Pull.WORKS, "InvalidImageName", "invalid reference format"),
        ("acme/a:1\n", Pull.WORKS, "InvalidImageName", "invalid reference format"),
    ],
)
def test_each_failure_has_the_words_of_the_runtime(image: str, pull: Pull, reason: str, text: str) -> None:
    failed = pull_failure(image, pull, "default", ())
    assert failed is not None
    assert failed.reason == reason
    assert text in failed.message


@pytest.mark.parametrize("image", [OURS, "gcr.io/acme/a:1", f"eu.gcr.io/acme/a@{DIGEST}"])
def test_only_googles_registries_ask_for_roles(image: str) -> None:
    assert pull_failure(image, Pull.WORKS, "default", {"default"}) is not None
    assert pull_failure(image, Pull.WORKS, "another", {"default"}) is None
    assert pull_failure("localhost:5000/a:1", Pull.WORKS, "default", {"default"}) is None
