"""The bill and the inventory as they are shown."""

from simulator.cloud.inventory import bill_of, inventory, market
from simulator.cloud.model import refusals
from simulator.cloud.model.requests import SetCapacity
from tests.simulator_cloud.stage import L4, PROJECT, ZONE, Stage


def test_the_bill_is_node_seconds_at_the_price_of_the_moment() -> None:
    stage = Stage().with_cluster().with_pool(2)
    stage.market(usd=1.0)
    before = bill_of(stage.cloud, stage.now_s, 1.0, "job=mnist")
    stage.pass_s(1800.0)
    stage.market(usd=3.0)
    stage.pass_s(900.0)
    after = bill_of(stage.cloud, stage.now_s, 1.0, "job=mnist")
    assert after["node_seconds"] - before["node_seconds"] == 2 * 2700.0
    assert after["micro_usd"] - before["micro_usd"] == 2 * (500_000 + 750_000)


def test_at_speed_the_bill_is_in_the_clouds_own_time() -> None:
    stage = Stage().with_cluster().with_pool(1)
    stage.pass_s(360.0)
    slow, fast = (bill_of(stage.cloud, stage.now_s, speed) for speed in (1.0, 10.0))
    assert fast["node_seconds"] == 10 * slow["node_seconds"]
    assert abs(fast["micro_usd"] - 10 * slow["micro_usd"]) <= 10


def test_the_parts_of_a_bill_add_up_to_the_whole() -> None:
    stage = Stage().with_cluster().with_pool(3)
    stage.preempt(stage.nodes()[0], notice_s=0.0)
    stage.pass_s(777.7)
    bill = bill_of(stage.cloud, stage.now_s, 1.0)
    for part in ("by_pool", "by_zone", "by_accelerator"):
        assert abs(sum(bill[part].values()) - bill["micro_usd"]) <= len(bill[part])


def test_two_pools_of_one_name_in_turn_are_one_on_the_bill_by_pool() -> None:
    stage = Stage().with_cluster().with_pool(1)
    stage.delete_pool()
    stage.pass_s(20.0)
    stage.with_pool(1)
    bill = bill_of(stage.cloud, stage.now_s, 1.0, "job")
    assert len(bill["lines"]) == 2
    assert bill["by_pool"] == {"tw/gpus": bill["micro_usd"]}


def test_a_label_wants_its_value_or_any() -> None:
    stage = Stage().with_cluster().with_pool(2)
    assert len(inventory(stage.cloud, "job=mnist")["nodes"]) == 2
    assert len(inventory(stage.cloud, "job")["nodes"]) == 2
    assert inventory(stage.cloud, "job=other")["nodes"] == []
    assert len(inventory(stage.cloud)["nodes"]) == 3


def test_the_inventory_says_why_a_node_waits() -> None:
    stage = Stage().with_cluster().with_pool(1)
    stage.ask(SetCapacity(L4, 0))
    stage.pass_s(60.0)
    (node,) = inventory(stage.cloud, "job")["nodes"]
    assert node["phase"] == "waiting"
    assert node["refused"] == refusals.stocked_out(PROJECT, ZONE, node["name"])


def test_the_market_shows_what_is_held_of_what_there_is() -> None:
    stage = Stage().with_cluster().with_pool(3)
    stage.market(capacity=5, usd=0.5)
    (reported,) = [each for each in market(stage.cloud) if each["accelerator"] == "nvidia-l4"]
    assert (reported["capacity"], reported["held"], reported["spot_micro_usd_per_hour"]) == (5, 3, 500_000)
