"""Watches of real clients: from the beginning, from a version, too late, with bookmarks, with selectors."""

from typing import Any

import pytest
from kubernetes_asyncio import client as kubernetes

from tests.conftest import eventual_answer
from tests.simulator_region.conftest import CLUSTER, Bench, a_bench, an_api, bearer, refused


async def make(bench: Bench, name: str, **labels: str) -> Any:
    body = {"metadata": {"name": name, "labels": labels}, "data": {"n": "0"}}
    return await bench.core.create_namespaced_config_map("default", body)


async def change(bench: Bench, name: str, **labels: str | None) -> Any:
    patch = {"metadata": {"labels": labels}}
    return await bench.core.patch_namespaced_config_map(name, "default", patch)


async def test_a_watch_tells_what_is_there_and_then_what_happens(bench: Bench) -> None:
    await make(bench, "before")
    async with bench.watching(bench.core.list_namespaced_config_map, namespace="default") as seen:
        await seen.until(("ADDED", "before"))
        await make(bench, "after")
        await change(bench, "after", new="label")
        await bench.core.delete_namespaced_config_map("after", "default")
        await seen.until(("DELETED", "after"))
    reported = [event for event in seen.events if event[1] == "after"]
    assert reported == [("ADDED", "after"), ("MODIFIED", "after"), ("DELETED", "after")]
    versions = [int(obj["metadata"]["resourceVersion"]) for obj in seen.raw if obj["metadata"]["name"] == "after"]
    assert versions == sorted(set(versions))


async def test_a_watch_continues_where_a_list_ended(bench: Bench) -> None:
    await make(bench, "old")
    listed = await bench.core.list_namespaced_config_map("default")
    await make(bench, "new")
    await bench.core.delete_namespaced_config_map("old", "default")
    version = listed.metadata.resource_version
    options = {"namespace": "default", "resource_version": version, "timeout_seconds": 1}
    async with bench.watching(bench.core.list_namespaced_config_map, **options) as seen:
        await seen.until_ended()
    assert seen.events == [("ADDED", "new"), ("DELETED", "old")]


async def test_with_a_selector_objects_come_and_go_as_they_match(bench: Bench) -> None:
    options = {"namespace": "default", "label_selector": "colour=red"}
    async with bench.watching(bench.core.list_namespaced_config_map, **options) as seen:
        await make(bench, "chameleon", colour="green")
        await change(bench, "chameleon", colour="red")
        await change(bench, "chameleon", colour="red", size="big")
        await change(bench, "chameleon", colour="blue")
        await seen.until(("DELETED", "chameleon"))
    assert seen.events == [("ADDED", "chameleon"), ("MODIFIED", "chameleon"), ("DELETED", "chameleon")]


async def test_a_version_that_was_forgotten_is_gone_and_a_new_list_helps(bench: Bench) -> None:
    stale = (await bench.core.list_namespaced_config_map("default")).metadata.resource_version
    await make(bench, "meanwhile")
    bench.region.clusters.compact(CLUSTER)
    options = {"namespace": "default", "resource_version": stale}
    async with bench.watching(bench.core.list_namespaced_config_map, **options) as seen:
        await seen.until_ended()
    assert isinstance(seen.error, kubernetes.ApiException)
    assert seen.error.status == 410

    fresh = await bench.core.list_namespaced_config_map("default")
    assert "meanwhile" in [each.metadata.name for each in fresh.items]
    options = {"namespace": "default", "resource_version": fresh.metadata.resource_version}
    async with bench.watching(bench.core.list_namespaced_config_map, **options) as seen:
        await make(bench, "later")
        await seen.until(("ADDED", "later"))


async def test_history_that_overflows_its_window_is_gone_too() -> None:
    async with a_bench(history_limit=5) as bench:
        stale = (await make(bench, "first")).metadata.resource_version
        for index in range(7):
            await make(bench, f"more-{index}")
        options = {"namespace": "default", "resource_version": stale, "timeout_seconds": 5}
        async with bench.watching(bench.core.list_namespaced_config_map, **options) as seen:
            await seen.until_ended()
        assert isinstance(seen.error, kubernetes.ApiException) and seen.error.status == 410
        with pytest.raises(kubernetes.ApiException) as caught:
            await bench.core.list_namespaced_config_map(
                "default", resource_version=stale, resource_version_match="Exact"
            )
        assert caught.value.status == 410


async def test_gone_can_be_said_as_a_status_and_in_the_middle_of_a_watch() -> None:
    async with a_bench(gone_as_status=True) as bench:
        stale = (await make(bench, "first")).metadata.resource_version
        await make(bench, "second")
        async with bench.watching(
            bench.core.list_namespaced_config_map, namespace="default", timeout_seconds=20
        ) as seen:
            await seen.until(("ADDED", "second"))
            bench.region.clusters.compact(CLUSTER, expire_watches=True)
            await seen.until_ended()
        assert isinstance(seen.error, kubernetes.ApiException) and seen.error.status == 410
        url = f"{bench.api.configuration.host}/api/v1/configmaps?watch=1&resourceVersion={stale}"
        headers = {"Authorization": bench.api.configuration.api_key["BearerToken"]}
        async with bench.session.get(url, headers=headers) as response:
            assert response.status == 410
            assert (await response.json())["reason"] == "Expired"


async def test_a_watch_that_keeps_up_survives_compaction(bench: Bench) -> None:
    async with bench.watching(bench.core.list_namespaced_config_map, namespace="default") as seen:
        await make(bench, "one")
        await seen.until(("ADDED", "one"))
        bench.region.clusters.compact(CLUSTER)
        await make(bench, "two")
        await seen.until(("ADDED", "two"))
    assert seen.error is None


async def test_bookmarks_carry_a_quiet_watch_forward() -> None:
    async with a_bench(bookmark_s=0.05) as bench:
        options = {"namespace": "default", "allow_watch_bookmarks": True, "timeout_seconds": 20}
        async with bench.watching(bench.core.list_namespaced_config_map, **options) as seen:
            lease = await bench.core.create_namespaced_secret("default", {"metadata": {"name": "elsewhere"}})
            reached = int(lease.metadata.resource_version)

            def bookmarked(_events: Any) -> bool:
                pairs = zip(seen.events, seen.raw, strict=True)
                marks = [raw for (kind, _), raw in pairs if kind == "BOOKMARK"]
                return any(int(raw["metadata"]["resourceVersion"]) >= reached for raw in marks)

            await eventual_answer(seen._now, bookmarked, "a bookmark past a change of another kind")


async def test_initial_events_end_with_a_bookmark(bench: Bench) -> None:
    await make(bench, "there")
    options = {
        "namespace": "default",
        "send_initial_events": True,
        "resource_version_match": "NotOlderThan",
        "allow_watch_bookmarks": True,
        "timeout_seconds": 20,
    }
    async with bench.watching(bench.core.list_namespaced_config_map, **options) as seen:
        await seen.until(("ADDED", "there"), ("BOOKMARK", ""))
    marks = [raw for (kind, _), raw in zip(seen.events, seen.raw, strict=True) if kind == "BOOKMARK"]
    assert marks[0]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_version_from_the_future_is_refused_to_lists_and_shows_nothing_to_watches() -> None:
    async with a_bench(bookmark_s=0.05) as bench:
        future = {"namespace": "default", "resource_version": str(10**15)}
        with refused(504, "Too large resource version"):
            await bench.core.list_namespaced_config_map(**future)
        options = {**future, "timeout_seconds": 1, "allow_watch_bookmarks": True}
        async with bench.watching(bench.core.list_namespaced_config_map, **options) as seen:
            await make(bench, "of-today")
            await seen.until_ended()
        assert (seen.events, seen.error) == ([], None)


async def test_an_expired_token_is_refused_while_its_watch_continues(bench: Bench) -> None:
    async with an_api(str(bench.api.configuration.host), bearer(lifetime_s=1.0)) as short:
        core = kubernetes.CoreV1Api(short)

        async def refused() -> int:
            try:
                await core.list_namespaced_config_map("default")
            except kubernetes.ApiException as problem:
                return int(problem.status)
            return 200

        options = {"namespace": "default", "timeout_seconds": 20}
        async with bench.watching(core.list_namespaced_config_map, **options) as seen:
            await seen.until(("ADDED", "kube-root-ca.crt"))
            await eventual_answer(refused, lambda status: status == 401, "the token expires")
            await make(bench, "after-expiry")
            await seen.until(("ADDED", "after-expiry"))
