"""What our clients rely on, as the simulator answers and as a real API server does: the same test for both."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from runtime.kubernetes.client import ApiRefused, NotFound, Query
from runtime.kubernetes.paths import NODES_PATH
from tests.conftest import eventually
from tests.kubernetes.ground import WORKER_ACCOUNT, Ground

STRATEGIC_PATCH = "application/strategic-merge-patch+json"
LABELS = {"app": "contract"}


def a_pod(name: str, **spec: Any) -> dict[str, Any]:
    usual = {"serviceAccountName": WORKER_ACCOUNT, "containers": [{"name": "main", "image": "any:1"}]}
    return {"metadata": {"name": name, "labels": LABELS}, "spec": {**usual, **spec}}


async def create_pod(ground: Ground, name: str, **spec: Any) -> dict[str, Any]:
    return read(await ground.api.create(ground.pods_path, a_pod(name, **spec)))


async def delete_pod(ground: Ground, name: str, grace_s: int) -> dict[str, Any]:
    return read(await ground.api.delete(f"{ground.pods_path}/{name}", grace_s=grace_s))


def read(answer: bytes) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(answer)
    return found


@contextlib.asynccontextmanager
async def watched(ground: Ground, path: str, **query: str) -> AsyncIterator[list[tuple[str, dict[str, Any]]]]:
    """What happens from now on: each change with the object."""
    events: list[tuple[str, dict[str, Any]]] = []
    version = read(await ground.api.get(path))["metadata"]["resourceVersion"]

    async def gather() -> None:
        lines = ground.api.watch(path, {"resourceVersion": version, **query}, 30.0)
        async with contextlib.aclosing(lines):
            async for line in lines:
                event = read(line)
                events.append((event["type"], event["object"]))

    task = asyncio.get_running_loop().create_task(gather(), name="watch")
    try:
        yield events
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_the_end_of_a_pod_is_seen_with_its_grace_before_it_is_gone(ground: Ground) -> None:
    node = await ground.node("n1")
    async with watched(ground, ground.pods_path) as events:
        await create_pod(ground, "placed")
        await ground.bind("placed", node)
        await delete_pod(ground, "placed", 20)
        await delete_pod(ground, "placed", 0)
        await create_pod(ground, "waiting")
        await delete_pod(ground, "waiting", 20)
        await eventually(lambda: [kind for kind, _ in events].count("DELETED") == 2, what="both ends")
    reported = [
        (obj["metadata"]["name"], kind, obj["metadata"].get("deletionGracePeriodSeconds")) for kind, obj in events
    ]
    assert reported == [
        ("placed", "ADDED", None),
        ("placed", "MODIFIED", None),
        ("placed", "MODIFIED", 20),
        ("placed", "MODIFIED", 0),
        ("placed", "DELETED", 0),
        ("waiting", "ADDED", None),
        ("waiting", "MODIFIED", 0),
        ("waiting", "DELETED", 0),
    ]
    versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in events]
    assert versions == sorted(set(versions))


async def test_who_deletes_a_pod_again_can_only_make_it_sooner(ground: Ground) -> None:
    await create_pod(ground, "placed")
    await ground.bind("placed", await ground.node("n1"))
    graces = [
        (await delete_pod(ground, "placed", grace_s))["metadata"]["deletionGracePeriodSeconds"]
        for grace_s in (20, 40, 3)
    ]
    assert graces == [20, 20, 3]


@pytest.mark.parametrize("code", [0, 1])
async def test_a_pod_that_has_ended_is_given_no_grace(ground: Ground, code: int) -> None:
    await create_pod(ground, "ended")
    await ground.run("ended", await ground.node("n1"))
    await ground.exit("ended", code)
    await delete_pod(ground, "ended", 20)
    with pytest.raises(NotFound):
        await ground.manifest("ended")


async def test_a_pod_is_placed_once_and_says_since_when(ground: Ground) -> None:
    node = await ground.node("n1")
    await create_pod(ground, "placed")
    await ground.bind("placed", node)
    with pytest.raises(ApiRefused, match=f'placed .*"{node}"') as refused:
        await ground.bind("placed", node)
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    with pytest.raises(NotFound):
        await ground.bind("nobody", node)
    placed = await ground.manifest("placed")
    [condition] = placed["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert condition["lastTransitionTime"]
    assert placed["status"]["phase"] == "Pending"


async def test_a_status_is_written_beside_the_spec_and_its_lists_as_the_patch_says(ground: Ground) -> None:
    node = await ground.node("n1")
    path = f"{NODES_PATH}/{node}"
    pressure = {"type": "MemoryPressure", "status": "False"}
    body = {
        "metadata": {"labels": {"told": "yes"}},
        "spec": {"unschedulable": True},
        "status": {"conditions": [pressure]},
    }
    merged = read(await ground.api.patch(f"{path}/status", body, STRATEGIC_PATCH))
    assert {each["type"] for each in merged["status"]["conditions"]} == {"Ready", "MemoryPressure"}
    assert merged["metadata"]["labels"]["told"] == "yes"
    assert "unschedulable" not in merged["spec"]
    replaced = read(await ground.api.patch(f"{path}/status", body))
    assert replaced["status"]["conditions"] == [{**pressure, "lastHeartbeatTime": None, "lastTransitionTime": None}]
    ignored = read(await ground.api.patch(path, {"status": {"conditions": []}}))
    assert ignored["status"]["conditions"] == replaced["status"]["conditions"]
    assert ignored["metadata"]["resourceVersion"] == replaced["metadata"]["resourceVersion"]


async def test_the_last_annotation_that_is_taken_off_leaves_no_annotations(ground: Ground) -> None:
    node = await ground.node("n1")
    await ground.annotate(node, {"one": "1", "two": "2"})
    await ground.annotate(node, {"one": None, "two": None, "three": None})
    assert "annotations" not in read(await ground.api.get(f"{NODES_PATH}/{node}"))["metadata"]


REFUSED = {
    "no containers": (a_pod("refused", containers=[]), 422, "spec.containers: Required value"),
    "one name twice": (a_pod("refused", containers=[{"name": "c", "image": "i"}] * 2), 422, 'Duplicate value: "c"'),
    "no quantity": (
        a_pod("refused", containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": "much"}}}]),
        400,
        'Pod in version "v1" cannot be handled as a Pod: quantities must match',
    ),
    "no text": (
        a_pod("refused", containers=[{"name": "c", "image": "i", "env": [{"name": "A", "value": 1}]}]),
        400,
        "cannot unmarshal",
    ),
    "no name": (a_pod("Not_A_Name"), 422, "a lowercase RFC 1123 subdomain"),
}


@pytest.mark.parametrize("mistake", REFUSED)
async def test_a_pod_that_cannot_be_is_refused(ground: Ground, mistake: str) -> None:
    body, code, words = REFUSED[mistake]
    with pytest.raises(ApiRefused) as refused:
        await ground.api.create(ground.pods_path, body)
    assert refused.value.code == code
    assert words in str(refused.value)


async def test_with_a_selector_objects_come_and_go_as_they_match(ground: Ground) -> None:
    path = f"/api/v1/namespaces/{ground.namespace}/configmaps"

    async def paint(colour: str) -> None:
        await ground.api.patch(f"{path}/chameleon", {"metadata": {"labels": {"colour": colour}}})

    async with watched(ground, path, labelSelector="colour=red") as events:
        await ground.api.create(path, {"metadata": {"name": "chameleon", "labels": {"colour": "green"}}})
        for colour in ("red", "blue", "red"):
            await paint(colour)
        await ground.api.patch(f"{path}/chameleon", {"data": {"size": "small"}})
        await ground.api.delete(f"{path}/chameleon")
        await eventually(lambda: len(events) == 5, what="five changes")
    assert [kind for kind, _ in events] == ["ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED"]


async def test_pages_of_a_list_show_one_moment(ground: Ground) -> None:
    for number in range(3):
        await create_pod(ground, f"p{number}")
    first = read(await ground.api.get(ground.pods_path, {"limit": 2}))
    await ground.kill("p2")
    page = {"limit": 2, "continue": first["metadata"]["continue"]}
    second = read(await ground.api.get(ground.pods_path, page))
    assert [each["metadata"]["name"] for each in first["items"] + second["items"]] == ["p0", "p1", "p2"]
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    assert "continue" not in second["metadata"]


async def test_only_the_very_object_is_deleted_and_the_refusal_says_why(ground: Ground) -> None:
    await create_pod(ground, "other")
    with pytest.raises(ApiRefused, match="UID") as refused:
        await ground.api.delete(f"{ground.pods_path}/other", uid="00000000-0000-0000-0000-000000000000")
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    assert await ground.manifest("other")


async def test_a_version_that_is_yet_to_come_shows_nothing(ground: Ground) -> None:
    version = int(read(await ground.api.get(ground.pods_path))["metadata"]["resourceVersion"])
    query: Query = {"resourceVersion": version + 10**6, "allowWatchBookmarks": "true", "timeoutSeconds": 1}
    await create_pod(ground, "of-today")
    async with contextlib.aclosing(ground.api.watch(ground.pods_path, query, 30.0)) as lines:
        assert [line async for line in lines] == []


async def test_nothing_is_made_in_a_namespace_that_is_being_deleted(ground: Ground) -> None:
    await ground.api.delete(f"/api/v1/namespaces/{ground.namespace}")
    namespace = read(await ground.api.get(f"/api/v1/namespaces/{ground.namespace}"))
    assert namespace["status"]["phase"] == "Terminating"
    with pytest.raises(ApiRefused, match="being terminated") as refused:
        await create_pod(ground, "late")
    assert refused.value.code == 403
