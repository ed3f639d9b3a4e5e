"""A region in this process, and the clients that real programs use: kubernetes-asyncio over loopback, plain HTTP."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiohttp
import pytest
from kubernetes_asyncio import client as kubernetes
from kubernetes_asyncio.watch import Watch

from simulator.cloud import tokens
from simulator.region.region import Region
from simulator.region.settings import ClusterRequest, NodeRequest, RegionSettings, Taint
from tests.conftest import eventual_answer

SECRET = "of the tests"
CLUSTER = "tests"


def settings(**changed: Any) -> RegionSettings:
    usual: dict[str, Any] = {"secret": SECRET, "crash_backoff_s": 0.1, "node_monitor_s": 0.05, "stop_grace_s": 0.5}
    return RegionSettings(**{**usual, **changed})


def bearer(lifetime_s: float = 600.0) -> str:
    return f"Bearer {tokens.issue(SECRET, time.time(), lifetime_s)}"


class Bench:
    """One cluster of a region, and the typed clients for it."""

    def __init__(self, region: Region, session: aiohttp.ClientSession, api: kubernetes.ApiClient) -> None:
        self.region = region
        self.session = session
        self.api = api
        self.core: Any = kubernetes.CoreV1Api(api)
        self.apps: Any = kubernetes.AppsV1Api(api)
        self.custom: Any = kubernetes.CustomObjectsApi(api)
        self.definitions: Any = kubernetes.ApiextensionsV1Api(api)
        self.leases: Any = kubernetes.CoordinationV1Api(api)
        self.roles: Any = kubernetes.RbacAuthorizationV1Api(api)

    async def node(self, name: str = "node-1", **changed: Any) -> None:
        await self.region.clusters.put_node(CLUSTER, name, a_node(**changed))

    async def pod(self, name: str, *command: str, **spec: Any) -> Any:
        """Creates a pod with one container that runs this command."""
        return await self.core.create_namespaced_pod("default", a_pod(name, *command, **spec))

    async def until_pod(self, name: str, condition: Callable[[Any], object], namespace: str = "default") -> Any:
        async def read() -> Any:
            return await self.core.read_namespaced_pod(name, namespace)

        return await eventual_answer(read, condition, f"pod {name}")

    async def until_phase(self, name: str, phase: str) -> Any:
        return await self.until_pod(name, lambda pod: pod.status.phase == phase)

    async def until_pod_gone(self, name: str) -> None:
        async def names() -> list[str]:
            return [pod.metadata.name for pod in (await self.core.list_namespaced_pod("default")).items]

        await eventual_answer(names, lambda found: name not in found, f"the end of pod {name}")

    async def until_log(self, name: str, text: str, **options: Any) -> str:
        async def read() -> str:
            try:
                return str(await self.core.read_namespaced_pod_log(name, "default", **options))
            except kubernetes.ApiException as problem:
                assert problem.status == 400, problem
                return ""

        return await eventual_answer(read, lambda log: text in log, f"{text!r} in the log of {name}")

    @contextlib.asynccontextmanager
    async def watching(self, function: Any, **options: Any) -> AsyncIterator["Watching"]:
        """Collects all events of a watch while the body runs."""
        seen = Watching()
        task = asyncio.create_task(seen.gather(function, options), name="watch of a test")
        try:
            yield seen
        finally:
            task.cancel()
            await asyncio.wait({task})


class Watching:
    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.raw: list[dict[str, Any]] = []
        self.error: BaseException | None = None
        self.ended = asyncio.Event()

    async def gather(self, function: Any, options: dict[str, Any]) -> None:
        async with Watch() as watch:
            try:
                async for event in watch.stream(function, **options):
                    self.raw.append(event["raw_object"])
                    self.events.append((event["type"], event["raw_object"]["metadata"].get("name", "")))
            except (kubernetes.ApiException, aiohttp.ClientError, ConnectionError) as error:
                self.error = error
            self.ended.set()

    async def until(self, *wanted: tuple[str, str]) -> None:
        await eventual_answer(self._now, lambda events: all(each in events for each in wanted), f"the events {wanted}")

    async def until_ended(self) -> None:
        async with asyncio.timeout(20.0):
            await self.ended.wait()

    async def _now(self) -> list[tuple[str, str]]:
        return self.events


def a_pod(name: str, *command: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "any", "command": list(command) or ["sleep", "600"]}
    container |= spec.pop("container", {})
    return {
        "metadata": {"name": name, "labels": spec.pop("labels", {"app": name})},
        "spec": {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 5, **spec},
    }


def a_node(
    *,
    instance: str = "instance-1",
    labels: dict[str, str] | None = None,
    taints: list[Taint] | None = None,
    capacity: dict[str, str] | None = None,
    zone: str = "us-central1-a",
) -> NodeRequest:
    return NodeRequest(
        instance_id=instance, labels=labels or {}, taints=taints or [], capacity=capacity or {}, zone=zone
    )


@contextlib.asynccontextmanager
async def a_bench(request: ClusterRequest | None = None, **changed: Any) -> AsyncIterator[Bench]:
    async with Region(settings(**changed)) as region, aiohttp.ClientSession() as session:
        view = await region.clusters.put(CLUSTER, request or ClusterRequest())
        async with an_api(view.endpoint, bearer()) as api:
            yield Bench(region, session, api)


@contextlib.asynccontextmanager
async def an_api(endpoint: str, authorization: str) -> AsyncIterator[kubernetes.ApiClient]:
    configuration = kubernetes.Configuration(host=endpoint)
    configuration.api_key["BearerToken"] = authorization
    async with kubernetes.ApiClient(configuration) as api:
        yield api


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with a_bench() as made:
        yield made


@contextlib.contextmanager
def refused(status: int, text: str = "") -> Iterator[None]:
    """Expects the API to refuse the body with this code and text."""
    with pytest.raises(kubernetes.ApiException) as caught:
        yield
    assert caught.value.status == status
    assert text in str(caught.value.body or caught.value.reason)
