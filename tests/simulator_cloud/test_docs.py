"""The page about the simulator lists all settings and requests."""

import re
from pathlib import Path

import pytest

from simulator.cloud.control import ControlApi
from simulator.cloud.settings import CloudSettings
from simulator.command import simulator
from simulator.market.markets import ACCELERATORS
from simulator.region.settings import RegionSettings
from tests.clouds.gke_fleets import read_gke_fleet

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "simulator.md").read_text()
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


def test_the_key_is_written_where_the_example_fleet_looks_for_it() -> None:
    (written,) = re.findall(r"^\.venv/bin/tradewind simulator --write-credentials (\S+)", PAGE, re.MULTILINE)
    read = read_gke_fleet(ROOT / "examples" / "fleet-simulator.yaml").cloud.credentials
    assert read is not None and ROOT / written == Path(read)


def test_every_flag_is_a_setting() -> None:
    known = {"part", *CloudSettings.__struct_fields__, *(f"region_{name}" for name in RegionSettings.__struct_fields__)}
    assert {parameter.name for parameter in simulator.params} <= known
