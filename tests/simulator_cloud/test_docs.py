"""The page about the simulator has everything that can be set and asked."""

from pathlib import Path

import pytest

from simulator.cloud.control import ControlApi
from simulator.cloud.settings import CloudSettings
from simulator.main import simulator
from simulator.market.accelerators import ACCELERATORS
from simulator.region.settings import RegionSettings

PAGE = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
HOST_AND_SECRET_ARE_THE_CLOUDS = {"region", "host", "secret"}


@pytest.mark.parametrize("name", CloudSettings.__struct_fields__)
def test_every_setting_of_the_cloud_is_described(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize("name", sorted(set(RegionSettings.__struct_fields__) - HOST_AND_SECRET_ARE_THE_CLOUDS))
def test_every_setting_of_a_region_is_described(name: str) -> None:
    assert f"`region_{name}`" in PAGE


def test_every_question_and_order_of_the_control_endpoint_is_described() -> None:
    routes = ControlApi.routes(object.__new__(ControlApi))
    for route in routes:
        assert f"`{route.method} {route.path}`" in PAGE


def test_every_accelerator_is_named() -> None:
    assert all(f"`{name}`" in PAGE for name in ACCELERATORS)


def test_every_flag_is_a_setting() -> None:
    known = {"part", *CloudSettings.__struct_fields__, *(f"region_{name}" for name in RegionSettings.__struct_fields__)}
    assert {parameter.name for parameter in simulator.params} <= known
