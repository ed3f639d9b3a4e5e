"""The whole simulator: the cloud with its real regions, in one process and in several."""

import asyncio
import contextlib
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import grpc
from google.cloud import container_v1
from google.cloud.container_v1.services.cluster_manager.transports import ClusterManagerGrpcAsyncIOTransport

from runtime import children
from runtime.process import Stop
from simulator.cloud import tokens
from simulator.cloud.server import Serving
from simulator.main import main, read_simulator_settings
from tests.conftest import eventual_answer
from tests.simulator_cloud.running import CLUSTER, LOCATION, POOL, PROJECT, REGION, SECRET, Running, quick


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextlib.asynccontextmanager
async def clients(grpc_port: int, http_port: int) -> AsyncIterator[Running]:
    url = f"http://127.0.0.1:{http_port}"
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{grpc_port}")
    gke = container_v1.ClusterManagerAsyncClient(transport=ClusterManagerGrpcAsyncIOTransport(channel=channel))
    token = tokens.issue(SECRET, time.time(), 600.0)
    async with aiohttp.ClientSession() as http:
        cloud = Running(Serving(f"127.0.0.1:{grpc_port}", url), {}, gke, http, token)

        async def is_up() -> bool:
            try:
                return all(region["reachable"] for region in (await cloud.get("/inventory"))["regions"])
            except aiohttp.ClientError:
                return False

        await eventual_answer(is_up, timeout_s=60.0)
        yield cloud
    await channel.close()


async def kubernetes_nodes(cloud: Running) -> dict[str, Any]:
    """Nodes by name, as the cluster's API lists them."""
    endpoint = (await cloud.call("get_cluster", name=CLUSTER)).endpoint
    headers = {"Authorization": f"Bearer {cloud.token}"}
    async with cloud.http.get(f"{endpoint}/api/v1/nodes", headers=headers) as response:
        assert response.status == 200, await response.text()
        return {item["metadata"]["name"]: item for item in (await response.json())["items"]}


async def test_everything_in_one_process_makes_nodes_that_kubernetes_knows() -> None:
    grpc_port, http_port = free_ports(2)
    flags = quick(grpc_port=grpc_port, http_port=http_port, regions=REGION, region_stop_grace_s=0.5)
    stop = Stop()
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(main(read_simulator_settings({}, flags), stop))
        async with clients(grpc_port, http_port) as cloud:
            await (await cloud.with_cluster()).with_pool(2)
            nodes = [node["name"] for node in await cloud.nodes()]
            known = await kubernetes_nodes(cloud)
            assert set(nodes) < set(known)
            victim = known[nodes[0]]
            assert victim["metadata"]["labels"]["cloud.google.com/gke-accelerator"] == "nvidia-l4"
            assert victim["status"]["capacity"]["nvidia.com/gpu"] == "1"
            await cloud.post("/control/preempt", {"node": nodes[0], "notice_s": 0})

            async def reborn() -> bool:
                found = (await kubernetes_nodes(cloud)).get(nodes[0])
                return found is not None and found["metadata"]["uid"] != victim["metadata"]["uid"]

            assert await eventual_answer(reborn)
            await cloud.done(await cloud.call("delete_node_pool", name=POOL))
            assert not set(nodes) & set(await kubernetes_nodes(cloud))
            await cloud.done(await cloud.call("delete_cluster", name=CLUSTER))
        stop.ask("the test is over")
    assert serving.result() == 0


async def start_part(part: str, *regions: str, **flags: Any) -> asyncio.subprocess.Process:
    argv = [sys.executable, "-m", "simulator", "--part", part]
    argv += [word for region in regions for word in ("--region", region)]
    env = {f"TRADEWIND_SIMULATOR_{name.upper()}": str(value) for name, value in flags.items()}
    path = {"PATH": "/usr/bin:/bin"}
    return await children.start(argv, env={**path, **env}, dies_with_us=True)


async def test_the_loss_of_a_regions_process_is_the_loss_of_the_region() -> None:
    grpc_port, http_port, region_port = free_ports(3)
    here = {"secret": SECRET, "region_port": region_port}
    flags = quick(grpc_port=grpc_port, http_port=http_port)
    region = await start_part("region", REGION, **here)
    cloud_process = await start_part("cloud", f"{REGION}=http://127.0.0.1:{region_port}", **flags)
    try:
        async with clients(grpc_port, http_port) as cloud:
            await (await cloud.with_cluster()).with_pool(1)
            (before,) = await cloud.nodes()
            region.send_signal(signal.SIGKILL)
            await region.wait()

            async def lost() -> bool:
                (known,) = (await cloud.get("/inventory"))["regions"]
                return not known["reachable"]

            assert await eventual_answer(lost)
            assert (await cloud.call("list_clusters", parent=LOCATION)).clusters[0].name == "tw"
            region = await start_part("region", REGION, **here)

            async def back() -> dict[str, Any] | None:
                found = await cloud.nodes()
                return found[0] if found and found[0]["instance_id"] != before["instance_id"] else None

            after = await eventual_answer(back, timeout_s=60.0)
            assert after["name"] == before["name"]
            assert before["name"] in await kubernetes_nodes(cloud)
            quotas = await cloud.get(f"/compute/v1/projects/{PROJECT}/regions/{REGION}", token=cloud.token)
            assert quotas["name"] == REGION
    finally:
        for process in (cloud_process, region):
            await children.end(process, 10.0)


async def test_a_port_that_is_taken_is_told_in_a_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        argv = [sys.executable, "-m", "simulator", "--part", "cloud", "--region", "us-central1=http://127.0.0.1:1"]
        argv += ["--http-port", str(taken.getsockname()[1]), "--grpc-port", "0"]
        process = await children.start(argv, stderr=asyncio.subprocess.PIPE, dies_with_us=True)
        try:
            async with asyncio.timeout(60.0):
                _, said = await process.communicate()
        finally:
            await children.end(process, 1.0)
    assert process.returncode == 2
    assert b"Error: The cloud cannot listen on 127.0.0.1:" in said
    assert b"Traceback" not in said
