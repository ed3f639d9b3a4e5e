import asyncio
import time
from typing import Any

import aiohttp
import pytest

from controlplane.bootstrap.bootstrap import Bootstrap
from controlplane.bootstrap.outcomes import PassOutcome, outcome_of
from controlplane.bootstrap.settings import Secrets
from controlplane.clouds.outcomes import Busy, Done, Refused, Unreachable
from messages.clusters import ClusterHeartbeat, StartFailure
from messages.ids import ClusterName
from runtime.bus import Bus
from runtime.errors import Temporary, UserError
from runtime.kubernetes.client import ApiUnavailable
from runtime.nats_server import NatsServer
from simulator.cloud import tokens
from tests.bootstrap.builders import CLUSTER, IMAGE, a_place, some_manifests, some_secrets, some_settings
from tests.bootstrap.servers import SECRET, SimulatedCloud, simulated_cloud
from tests.conftest import eventual_answer, eventually
from tests.topologies import hear_topologies


def a_bootstrap(cloud: SimulatedCloud, reported: list[PassOutcome] | None = None, **changes: Any) -> Bootstrap:
    reports: list[PassOutcome] = [] if reported is None else reported
    return Bootstrap(cloud, some_settings(**changes), some_secrets(), lambda place, outcome: reports.append(outcome))


async def get(cloud: SimulatedCloud, path: str, token: str = "", **query: str) -> tuple[int, Any]:
    return await call(cloud, "GET", path, token, query=query)


async def call(
    cloud: SimulatedCloud,
    method: str,
    path: str,
    token: str = "",
    body: Any = None,
    query: dict[str, str] | None = None,
) -> tuple[int, Any]:
    """Send a request with a token; by default as an administrator."""
    headers = {"Authorization": f"Bearer {token or await SimulatedCloud(cloud.region_url).access_token()}"}
    if method == "PATCH":
        headers["Content-Type"] = "application/merge-patch+json"
    url = f"{cloud.region_url}/k8s/{CLUSTER}{path}"
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, json=body, headers=headers) as answer,
    ):
        return answer.status, await answer.json()


async def account_token(cloud: SimulatedCloud, account: str) -> str:
    path = f"/api/v1/namespaces/tradewind/serviceaccounts/{account}/token"
    _, answer = await call(cloud, "POST", path, body={"spec": {"expirationSeconds": 600}})
    token: str = answer["status"]["token"]
    return token


async def test_a_restarted_master_takes_over_what_it_finds(cloud: SimulatedCloud) -> None:
    assert await a_bootstrap(cloud).install(a_place()) == Done()
    _, before = await get(cloud, "/apis/apps/v1/namespaces/tradewind/deployments/cluster-controller")

    assert await a_bootstrap(cloud).install(a_place()) == Done()

    _, after = await get(cloud, "/apis/apps/v1/namespaces/tradewind/deployments/cluster-controller")
    assert after["metadata"]["generation"] == before["metadata"]["generation"] == 1
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def test_two_masters_at_once_install_one_of_each(cloud: SimulatedCloud) -> None:
    outcomes = await asyncio.gather(*(a_bootstrap(cloud).install(a_place()) for _ in range(2)))

    assert outcomes == [Done(), Done()]
    _, found = await get(cloud, "/apis/apps/v1/deployments")
    assert len(found["items"]) == 1


async def test_an_api_that_is_away_is_installed_into_when_it_is_back(cloud: SimulatedCloud) -> None:
    await cloud.command("POST", "cut", {"cut": True})
    reported: list[PassOutcome] = []
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(a_bootstrap(cloud, reported).install_until_done(a_place()), name="install")
        await eventually(lambda: cloud.tokens_asked > 3)
        await cloud.command("POST", "cut", {"cut": False})

    away, done = reported
    assert isinstance(away, Unreachable)
    assert CLUSTER in away.detail and "`authorized_networks`" in away.detail
    assert done == Done()


async def test_an_api_that_says_nothing_is_given_up_in_time(cloud: SimulatedCloud) -> None:
    await cloud.command("POST", "cut", {"cut": True, "how": "silence"})

    outcome = await a_bootstrap(cloud, call_s=0.1).install(a_place())

    await cloud.command("POST", "cut", {"cut": False})
    assert isinstance(outcome, Unreachable)
    assert "0.1 s" in outcome.detail


async def test_a_token_is_asked_for_at_each_call_and_one_that_just_expired_does_no_harm(cloud: SimulatedCloud) -> None:
    expired = tokens.issue(SECRET, time.time() - 100, 5.0)
    cloud.next_tokens = [await cloud.access_token(), expired]

    assert await a_bootstrap(cloud).install(a_place()) == Done()

    calls = 2 * len(some_manifests())
    assert cloud.tokens_asked == 1 + calls + 1


async def test_a_token_that_is_never_accepted_is_refused(cloud: SimulatedCloud) -> None:
    cloud.next_tokens = ["not-a-token"] * 2
    refused = outcome_of(ApiUnavailable("unauthorized", 401), "start the installation", CLUSTER)
    assert isinstance(refused, Refused)
    assert await a_bootstrap(cloud).install(a_place()) == refused


async def test_an_account_without_rights_is_refused_with_the_missing_role(cloud: SimulatedCloud) -> None:
    await a_bootstrap(cloud).install(a_place())
    cloud.next_tokens = [await account_token(cloud, "worker")]

    outcome = await a_bootstrap(cloud).install(a_place())

    assert isinstance(outcome, Refused)
    assert "Namespace tradewind" in outcome.detail and CLUSTER in outcome.detail
    assert "roles/container.admin" in outcome.hint


async def test_what_a_person_has_to_correct_is_told_once_and_tried_again(cloud: SimulatedCloud) -> None:
    refused = Refused("The API is disabled.", "enable it")
    cloud.refusal = refused
    reported: list[PassOutcome] = []
    asked = cloud.tokens_asked
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(a_bootstrap(cloud, reported).install_until_done(a_place()), name="install")
        await eventually(lambda: reported)
        await asyncio.sleep(0.2)
        assert not task.done()
        cloud.refusal = None
    assert reported == [refused, Done()]
    assert cloud.tokens_asked > asked


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Temporary("nobody gives us a token"), Unreachable("nobody gives us a token")),
        (UserError("There are no credentials.", "log in"), Refused("There are no credentials.", "log in")),
    ],
)
async def test_a_cloud_that_gives_no_token_says_why(
    cloud: SimulatedCloud, error: Exception, expected: PassOutcome
) -> None:
    class NoTokens(SimulatedCloud):
        async def access_token(self, cluster: ClusterName = CLUSTER) -> str:
            raise error

    assert await a_bootstrap(NoTokens(cloud.region_url)).install(a_place()) == expected


async def test_what_is_being_deleted_is_installed_again_when_it_is_gone(cloud: SimulatedCloud) -> None:
    reported: list[PassOutcome] = []
    bootstrap = a_bootstrap(cloud, reported)
    await bootstrap.install_until_done(a_place())

    await call(cloud, "DELETE", "/api/v1/namespaces/tradewind")
    await bootstrap.install_until_done(a_place())

    assert [each for each in reported if not isinstance(each, Busy)] == [Done(), Done()]
    status, _ = await get(cloud, "/apis/apps/v1/namespaces/tradewind/deployments/cluster-controller")
    assert status == 200


async def test_the_controller_is_on_the_system_pool_and_the_notice_on_the_nodes_of_jobs(cloud: SimulatedCloud) -> None:
    taint = {"key": "tradewind-job", "value": "mnist", "effect": "NoSchedule"}
    spot = {"labels": {"tradewind-job": "mnist"}, "taints": [taint]}
    nodes = f"clusters/{CLUSTER}/nodes"
    await cloud.command("PUT", f"{nodes}/spot-1", {"instance_id": "1", **spot})
    await cloud.command("PUT", f"{nodes}/system-1", {"instance_id": "2"})
    await cloud.command("PUT", f"{nodes}/spot-2", {"instance_id": "3", **spot})

    await a_bootstrap(cloud).install_until_done(a_place())

    assert await _placed(cloud, count=3) == [
        ("tradewind-cluster-controller", "system-1"),
        ("tradewind-notice", "spot-1"),
        ("tradewind-notice", "spot-2"),
    ]


async def test_a_controller_that_was_installed_reports_its_cluster(nats_server: NatsServer, bus: Bus) -> None:
    heard: list[ClusterHeartbeat] = []
    await hear_topologies(bus, CLUSTER, heard.append)
    async with simulated_cloud(controllers=True, runs_pods=True) as cloud:
        await cloud.command("PUT", f"clusters/{CLUSTER}/nodes/system-1", {"instance_id": "1", "zone": "us-central1-a"})
        bootstrap = Bootstrap(cloud, some_settings(), Secrets(nats_server.url))
        await bootstrap.install_until_done(a_place())

        await eventually(lambda: heard and heard[-1].nodes, timeout_s=30.0)

    assert heard[-1].region == "us-central1"
    assert [(node.node, node.zone, node.job) for node in heard[-1].nodes] == [("system-1", "us-central1-a", None)]


async def _placed(cloud: SimulatedCloud, count: int) -> list[tuple[str, str]]:
    async def on_nodes() -> list[Any]:
        _, pods = await get(cloud, "/api/v1/namespaces/tradewind/pods")
        return [each for each in pods["items"] if each["spec"].get("nodeName")]

    placed = await eventual_answer(on_nodes, lambda pods: len(pods) == count, f"{count} pods on nodes")
    return sorted((each["metadata"]["labels"]["app"], each["spec"]["nodeName"]) for each in placed)


async def test_a_controller_whose_image_cannot_be_pulled_is_found_out(cloud: SimulatedCloud) -> None:
    bootstrap = a_bootstrap(cloud)
    assert await bootstrap.controller_failure(CLUSTER) is None
    await cloud.command("PUT", f"clusters/{CLUSTER}/nodes/system-1", {"instance_id": "1"})
    await bootstrap.install_until_done(a_place())
    failure = await _failure(bootstrap)
    assert (failure.image, failure.node) == (IMAGE, "system-1")
    assert "not found" in failure.detail


async def _failure(bootstrap: Bootstrap) -> StartFailure:
    return await eventual_answer(lambda: bootstrap.controller_failure(CLUSTER), what="a failure")


async def test_a_cluster_that_does_not_answer_says_nothing_of_its_controller() -> None:
    assert await a_bootstrap(SimulatedCloud("http://127.0.0.1:1")).controller_failure(CLUSTER) is None
