"""The control endpoint, and the effects of its orders on the region."""

import time
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions

from tests.conftest import eventual_answer
from tests.simulator_cloud.running import CLUSTER, OTHER, POOL, REGION, ZONE, Running, a_pool, running_cloud

L4 = {"zone": ZONE, "accelerator": "nvidia-l4"}


async def test_a_node_is_preempted_with_notice_and_comes_back_under_its_name() -> None:
    async with running_cloud() as cloud:
        await (await cloud.with_cluster()).with_pool(2)
        victim = (await cloud.nodes())[0]
        await cloud.post("/control/preempt", {"node": victim["name"], "notice_s": 0.2})

        async def back() -> dict[str, Any] | None:
            return next(
                (
                    node
                    for node in await cloud.nodes()
                    if node["name"] == victim["name"] and node["instance_id"] != victim["instance_id"]
                ),
                None,
            )

        again = await eventual_answer(back)
        ((name, notice_s),) = cloud.region.preempted
        assert name == victim["name"]
        assert 0 < notice_s <= 0.2
        assert cloud.region.nodes[victim["name"]]["instance_id"] == again["instance_id"]


async def test_a_node_is_lost_without_a_word() -> None:
    async with running_cloud(recreate_s=60.0) as cloud:
        await (await cloud.with_cluster()).with_pool(1)
        victim = (await cloud.nodes())[0]["name"]
        await cloud.post("/control/preempt", {"node": victim, "notice_s": 0})
        await cloud.until_nodes(1, "waiting")

        async def reported() -> bool:
            return (victim, 0.0) in cloud.region.preempted and victim not in cloud.region.nodes

        assert await eventual_answer(reported)


async def test_a_zone_is_stocked_out_as_a_whole_or_for_one_accelerator() -> None:
    async with running_cloud() as cloud:
        await cloud.with_cluster()
        await cloud.post("/control/stockout", {"zone": ZONE, "on": True})
        ended = await cloud.done(await cloud.call("create_node_pool", parent=CLUSTER, node_pool=a_pool(1)))
        assert "GCE_STOCKOUT" in ended.status_message
        await cloud.post("/control/stockout", {"zone": ZONE, "accelerator": "L4", "on": False})
        await cloud.until_nodes(1)


async def test_capacity_takes_nodes_and_gives_them_back() -> None:
    async with running_cloud() as cloud:
        await (await cloud.with_cluster()).with_pool(3)
        await cloud.post("/control/capacity", {**L4, "capacity": 1})
        await cloud.until_nodes(2, "waiting")
        assert len(cloud.region.preempted) == 2
        (market,) = [each for each in await cloud.get("/market") if each["accelerator"] == "nvidia-l4"]
        assert (market["capacity"], market["held"]) == (1, 1)
        await cloud.post("/control/capacity", {**L4, "capacity": None})
        await cloud.until_nodes(3)


async def test_a_price_that_is_raised_is_billed() -> None:
    async with running_cloud(speed=1.0) as cloud:
        await (await cloud.with_cluster()).with_pool(1)
        await cloud.post("/control/price", {**L4, "price": 36.0})

        async def billed() -> dict[str, Any] | None:
            bill: dict[str, Any] = await cloud.get("/bill?label=tradewind-job=mnist")
            return bill if bill["micro_usd"] >= 1000 else None

        bill = await eventual_answer(billed)
        (line,) = bill["lines"]
        assert line["micro_usd_per_hour"] == 36_000_000
        assert line["nodes"] == 1
        assert isinstance(bill["micro_usd"], int)
        assert bill["by_label"] == {"tradewind-job=mnist": bill["micro_usd"]}
        assert bill["by_pool"] == {"tw/gpus": bill["micro_usd"]}
        assert bill["by_accelerator"] == {"nvidia-l4": bill["micro_usd"]}
        everything = await cloud.get("/bill")
        assert set(everything["by_accelerator"]) == {"nvidia-l4", "cpu"}
        assert everything["by_zone"][ZONE] == everything["micro_usd"]


async def test_the_bill_of_a_deleted_pool_stays_and_stands_still() -> None:
    async with running_cloud() as cloud:
        await (await cloud.with_cluster()).with_pool(2)
        await cloud.done(await cloud.call("delete_node_pool", name=POOL))
        first = await cloud.get("/bill?label=tradewind-job")
        second = await cloud.get("/bill?label=tradewind-job")
        assert first == second
        assert first["node_seconds"] > 0


async def test_the_inventory_shows_what_carries_a_label_and_nothing_when_it_is_gone() -> None:
    async with running_cloud() as cloud:
        await (await cloud.with_cluster()).with_pool(2)
        found = await cloud.get("/inventory?label=tradewind-job=mnist")
        assert [pool["name"] for pool in found["pools"]] == ["gpus"]
        assert found["by_label"] == {"tradewind-job=mnist": {"pools": 1, "nodes": 2}}
        assert {node["phase"] for node in found["nodes"]} == {"running"}
        assert not (await cloud.get("/inventory?label=tradewind-job=other"))["pools"]
        await cloud.done(await cloud.call("delete_node_pool", name=POOL))
        left = await cloud.get("/inventory?label=tradewind-job=mnist")
        assert (left["pools"], left["nodes"], left["by_label"], left["operations"]) == ([], [], {}, [])
        assert [cluster["name"] for cluster in left["clusters"]] == ["tw"]


async def test_a_region_is_cut_off_and_joined_again() -> None:
    async with running_cloud() as cloud:
        await cloud.post("/control/cut", {"region": REGION, "cut": True})
        assert cloud.region.cut
        assert not cloud.regions[OTHER].cut
        await cloud.post("/control/cut", {"region": REGION, "cut": False})
        assert not cloud.region.cut
        await cloud.post("/control/cut", {"region": "mars-north1", "cut": True}, status=404)
        cloud.region.obeys = False
        await cloud.post("/control/cut", {"region": REGION, "cut": True}, status=502)


async def test_a_quota_is_set_and_lifted() -> None:
    async with running_cloud() as cloud:
        await cloud.with_cluster()
        for where in ({"region": REGION, "metric": "nvidia-l4"}, {"metric": "GPUS_ALL_REGIONS"}):
            await cloud.post("/control/quota", {**where, "limit": 1})
            with pytest.raises(exceptions.PermissionDenied, match=r"'2\.0'.*'1\.0'.*'1\.0'.*'1\.0'"):
                await cloud.call("create_node_pool", parent=CLUSTER, node_pool=a_pool(2))
            await cloud.post("/control/quota", {**where, "limit": None})
        await cloud.with_pool(2)


async def test_calls_are_logged_with_the_time_of_their_arrival() -> None:
    async with running_cloud() as cloud:
        await (await cloud.with_cluster()).with_pool(1)
        before = time.monotonic()
        await cloud.done(await cloud.call("set_node_pool_size", name=POOL, node_count=2))
        (call,) = await cloud.get("/calls?api=gke&method=SetNodePoolSize")
        assert before < call["monotonic_s"] < time.monotonic()
        assert call["target"] == "acme/us-central1/tw/gpus"
        assert call["detail"] == "node_count=2"
        assert call["outcome"] == "OK"
        ordered = await cloud.post("/control/preempt", {"node": (await cloud.nodes())[0]["name"]})
        (after,) = await cloud.get(f"/calls?since={ordered['call'] - 1}&api=control")
        assert after["method"] == "preempt"
        assert [each["number"] for each in await cloud.get("/calls")] == list(range(1, ordered["call"] + 1))


NONSENSE: list[tuple[str, Any, int]] = [
    ("preempt", {"node": "nobody"}, 404),
    ("preempt", {"nodes": "x"}, 400),
    ("preempt", {"node": "x", "notice_s": -1}, 400),
    ("preempt", {"node": "x", "notice_s": 1e300}, 400),
    ("preempt", [], 400),
    ("stockout", {"zone": "nowhere", "on": True}, 400),
    ("stockout", {"zone": ZONE, "accelerator": "abacus", "on": True}, 400),
    ("capacity", {"zone": ZONE, "accelerator": "abacus", "capacity": 1}, 400),
    ("capacity", {**L4, "capacity": -1}, 400),
    ("price", {"zone": "x", "accelerator": "l4", "price": 1}, 400),
    ("price", {**L4, "price": "dear"}, 400),
    ("price", {**L4, "price": -1}, 400),
    ("price", {**L4, "price": 1e308}, 400),
    ("capacity", {**L4, "capacity": 10**30}, 400),
    ("quota", {"region": REGION, "metric": "nvidia-l4", "limit": 10**20}, 400),
    ("quota", {"region": REGION, "metric": "LUCK", "limit": 1}, 400),
    ("quota", {"metric": "CPUS", "limit": 1}, 400),
    ("quota", {"region": "moon", "metric": "CPUS", "limit": 1}, 404),
    ("api", {"api": "dns"}, 404),
    ("refuse", {"method": "regions.get", "code": "UNAVAILABLE", "message": "away"}, 404),
    ("cut", {"region": REGION}, 400),
]


async def test_orders_that_make_no_sense_are_refused_in_a_sentence() -> None:
    async with running_cloud() as cloud:
        for path, body, status in NONSENSE:
            answer = await cloud.post(f"/control/{path}", body, status=status)
            assert isinstance(answer["error"], str)


async def test_a_method_or_region_that_there_is_not_is_answered_with_those_that_there_are() -> None:
    async with running_cloud() as cloud:
        refuse = {"method": "SetNodePoolSiz", "code": "UNAVAILABLE", "message": "away"}
        for api, known in (("gke", "SetNodePoolSize"), ("compute", "regions.get")):
            answer = await cloud.post("/control/refuse", {**refuse, "api": api}, status=404)
            assert all(value in answer["error"] for value in ("'SetNodePoolSiz'", f" {api};", known))
        quota = {"region": "moon", "metric": "CPUS", "limit": 1}
        answer = await cloud.post("/control/quota", quota, status=404)
        assert "'moon'" in answer["error"] and REGION in answer["error"]


async def test_health_is_told_and_a_question_that_is_none_is_refused() -> None:
    async with running_cloud() as cloud:
        assert await cloud.get("/healthz") == {"status": "ok"}
        async with cloud.http.get(f"{cloud.serving.url}/calls?since=yesterday") as response:
            assert response.status == 400


async def with_fleet(cloud: Running) -> set[str]:
    await (await cloud.with_cluster()).with_pool(2)
    return {node["instance_id"] for node in await cloud.nodes()}


async def test_a_region_that_goes_away_and_comes_back_as_it_was_has_lost_nothing() -> None:
    async with running_cloud() as cloud:
        before = await with_fleet(cloud)
        await cloud.region.stop()

        async def away() -> bool:
            regions = (await cloud.get("/inventory"))["regions"]
            return {"name": REGION, "reachable": False} in regions

        assert await eventual_answer(away)
        await cloud.call("set_node_pool_size", name=POOL, node_count=3)
        await cloud.region.start()
        await cloud.until_nodes(3)
        assert before < {node["instance_id"] for node in await cloud.nodes()}


async def test_a_region_that_was_killed_gets_its_clusters_and_new_machines_when_it_is_back() -> None:
    async with running_cloud() as cloud:
        before = await with_fleet(cloud)
        await cloud.region.restart_empty()

        async def back() -> bool:
            ids = {node["instance_id"] for node in await cloud.nodes()}
            return len(ids) == 2 and not ids & before

        assert await eventual_answer(back)
        assert set(cloud.region.clusters) == {"tw"}
        assert (await cloud.call("get_cluster", name=CLUSTER)).status.name == "RUNNING"


async def test_a_region_that_refuses_is_asked_again() -> None:
    async with running_cloud() as cloud:
        await cloud.with_cluster()
        cloud.region.obeys = False
        operation = await cloud.call("create_node_pool", parent=CLUSTER, node_pool=a_pool(2))
        await cloud.until_nodes(2, "booting")
        cloud.region.obeys = True
        assert not (await cloud.done(operation)).status_message
        await cloud.until_nodes(2)


async def test_a_trace_moves_the_market_of_a_running_cloud(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = ["time_s,zone,accelerator,capacity,price", f"0,{ZONE},L4,0,0.25", f"100,{ZONE},L4,3,0.75"]
    trace.write_text("\n".join(rows))
    async with running_cloud(trace=str(trace), speed=50.0, default_capacity=0) as cloud:
        await cloud.with_cluster()
        await cloud.call("create_node_pool", parent=CLUSTER, node_pool=a_pool(5))
        await cloud.until_nodes(3)
        await cloud.until_nodes(2, "waiting")
        (line,) = (await cloud.get("/bill?label=tradewind-job"))["lines"]
        assert line["micro_usd_per_hour"] == 750_000
        assert not cloud.region.preempted


async def test_a_generated_market_deals_in_every_zone() -> None:
    async with running_cloud(generate=True, accelerators="L4,T4", seed=3) as cloud:
        markets = await cloud.get("/market")
        assert len(markets) == 2 * 3 * 2
        assert all(market["spot_micro_usd_per_hour"] > 0 for market in markets)
    async with running_cloud(generate=True, accelerators="L4,T4", seed=3) as cloud:
        assert await cloud.get("/market") == markets


async def test_a_node_account_without_roles_shows_in_the_clusters_conditions_until_they_are_granted() -> None:
    async with running_cloud() as cloud:
        await (await cloud.with_cluster()).with_pool(1, service_account="nodes@acme.iam.gserviceaccount.com")
        assert await _conditions(cloud) == []
        await cloud.post("/control/roles", {"account": "nodes@acme.iam.gserviceaccount.com", "granted": False})
        assert await _conditions(cloud) == ["NODE_SERVICE_ACCOUNT_MISSING_PERMISSIONS"]
        assert cloud.region.roleless == {"nodes@acme.iam.gserviceaccount.com"}
        (node,) = await cloud.nodes()
        assert cloud.region.nodes[node["name"]]["service_account"] == "nodes@acme.iam.gserviceaccount.com"
        await cloud.post("/control/roles", {"account": "nodes@acme.iam.gserviceaccount.com", "granted": True})
        assert await _conditions(cloud) == []
        assert not cloud.region.roleless


async def _conditions(cloud: Running) -> list[str]:
    return [each.code.name for each in (await cloud.call("get_cluster", name=CLUSTER)).conditions]
