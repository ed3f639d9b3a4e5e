"""The installed accounts may do what their programs do, and nothing else."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import msgspec
import pytest

from agents.clouds.interface import Notice
from agents.cluster.kubernetes.main import control
from agents.cluster.kubernetes.settings import KubernetesSettings
from agents.notice.node import NodeAnnotation
from messages import subjects
from messages.clusters import Answer, ClusterHeartbeat, KeepWorkers, WorkerTemplate
from messages.ids import ClusterName, Epoch, JobName
from messages.labels import NOTICE_ANNOTATION
from runtime.bus import Bus
from runtime.clock import SystemClock
from runtime.kubernetes.client import ApiRefused, KubernetesApi
from runtime.kubernetes.configuration import ApiConfiguration, connected, from_endpoint
from runtime.kubernetes.objects import Listing
from runtime.kubernetes.paths import NODES_PATH, pods_path
from runtime.nats_server import NatsServer
from runtime.process import Stop
from tests.bootstrap.installation import Installation
from tests.conftest import eventual_answer, eventually
from tests.topologies import hear_topologies

ACCOUNTS = ("cluster-controller", "notice", "worker")
HERE = ClusterName("here")
JOB = JobName("story")


async def as_account(there: Installation, account: str) -> ApiConfiguration:
    """The access of that account's pods to the API."""
    known = there.server.configuration.library
    path = f"/api/v1/namespaces/{there.server.namespace}/serviceaccounts/{account}/token"
    answer = await there.server.ask("POST", path, {"spec": {"expirationSeconds": 600}})

    async def token() -> str:
        return str(answer["status"]["token"])

    configuration = from_endpoint(known.host, token)
    configuration.library.ssl_ca_cert = known.ssl_ca_cert
    configuration.library.verify_ssl = known.verify_ssl
    return configuration


@contextlib.asynccontextmanager
async def running(work: Coroutine[Any, Any, object], name: str) -> AsyncIterator[None]:
    task = asyncio.get_running_loop().create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def node(there: Installation) -> AsyncIterator[str]:
    name = f"tw-test-{secrets.token_hex(4)}"
    await there.server.ask("POST", NODES_PATH, {"metadata": {"name": name}})
    yield name
    await there.server.ask("DELETE", f"{NODES_PATH}/{name}")


async def is_allowed(api: KubernetesApi, method: str, path: str) -> bool:
    """True if the account may make the call, even if the path does not exist."""
    try:
        match method:
            case "GET":
                await api.get(path)
            case "PATCH":
                await api.patch(path, {"metadata": {"annotations": {NOTICE_ANNOTATION: "1"}}})
            case _:
                await api.delete(path)
    except ApiRefused as refused:
        return refused.code != 403
    return True


async def test_accounts_may_do_what_they_need_and_nothing_else(there: Installation, node: str) -> None:
    await there.install()
    namespace = there.server.namespace
    asked: list[tuple[str, str, set[str]]] = [
        ("GET", pods_path(namespace), {"cluster-controller"}),
        ("DELETE", f"{pods_path(namespace)}/nobody", {"cluster-controller"}),
        ("GET", NODES_PATH, {"cluster-controller"}),
        ("GET", f"{NODES_PATH}/{node}", {"cluster-controller", "notice"}),
        ("PATCH", f"{NODES_PATH}/{node}", {"notice"}),
        ("DELETE", f"{NODES_PATH}/nobody", set()),
        ("GET", pods_path("default"), set()),
        ("GET", f"/api/v1/namespaces/{namespace}/secrets/bus", set()),
        ("PATCH", f"/apis/apps/v1/namespaces/{namespace}/deployments/cluster-controller", set()),
    ]
    async with contextlib.AsyncExitStack() as stack:
        apis = {
            account: await stack.enter_async_context(connected(await as_account(there, account), "test"))
            for account in ACCOUNTS
        }
        # A server for tests may allow everything to everybody.
        asks_roles = not await is_allowed(apis["worker"], "GET", "/api/v1/namespaces")
        for method, path, allowed in asked:
            found = {account for account, api in apis.items() if await is_allowed(api, method, path)}
            assert found == (allowed if asks_roles else set(ACCOUNTS)), (method, path)


async def test_the_controller_does_its_work_with_the_rights_of_its_account(
    there: Installation, nats_server: NatsServer, bus: Bus
) -> None:
    await there.install()
    heard: list[ClusterHeartbeat] = []

    async def keep(count: int) -> None:
        command = KeepWorkers(JOB, count, WorkerTemplate())
        received = await bus.request(subjects.cluster_command(HERE), command, 10.0, epoch=Epoch(1))
        assert received.message == Answer(ok=True)

    await hear_topologies(bus, HERE, heard.append)
    namespace = there.server.namespace
    settings = KubernetesSettings(
        cluster=HERE, namespace=namespace, worker_account="worker", nats_url=nats_server.url, connect_timeout_s=20.0
    )
    configuration, stop = await as_account(there, "cluster-controller"), Stop()
    async with running(control(settings, configuration, stop), "controller"), connected(configuration, "test") as api:

        async def are_there(count: int) -> bool:
            listing = msgspec.json.decode(await api.get(pods_path(namespace)), type=Listing)
            return len(listing.items or ()) == count

        await eventually(lambda: heard, what="a topology")
        await keep(2)
        await eventual_answer(lambda: are_there(2), what="two pods")
        await eventually(lambda: len(heard[-1].workers) == 2, what="two workers")
        await keep(0)
        await eventual_answer(lambda: are_there(0), what="no pods")


async def test_a_notice_is_written_with_the_rights_of_its_account(there: Installation, node: str) -> None:
    await there.install()
    async with connected(await as_account(there, "notice"), "test") as api:
        annotation = NodeAnnotation(api, node, "", SystemClock())
        annotation.tell(Notice(30.0, "it is being preempted"))
        async with running(annotation.run(), "annotation"):

            async def is_noticed() -> bool:
                found = await there.server.ask("GET", f"{NODES_PATH}/{node}")
                return NOTICE_ANNOTATION in found["metadata"].get("annotations", {})

            await eventual_answer(is_noticed, what="the notice on the node")
