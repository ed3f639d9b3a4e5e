"""Settings of the simulator from flags and the environment, and messages for invalid ones."""

from pathlib import Path
from typing import Any

import pytest

from runtime.errors import UserError
from runtime.process import Stop
from simulator.cloud.server import serve_cloud
from simulator.cloud.settings import (
    CloudSettings,
    markets_of,
    project_names,
    quota_limits,
    region_urls,
    rules_of,
    trace_files,
)
from simulator.main import SimulatorSettings, main, read_simulator_settings
from simulator.market.markets import Market

SOMEWHERE = "us-central1=http://here:1/"


def test_delays_are_divided_by_the_speed_and_the_notice_is_not() -> None:
    rules = rules_of(CloudSettings(regions=SOMEWHERE, speed=10.0, boot_s=60.0, notice_s=30.0, lifetime_s=3600.0))
    assert rules.boot_s == 6.0
    assert rules.cluster_s == 24.0
    assert rules.notice_s == 30.0
    assert rules.lifetimes is not None
    assert rules.lifetimes.mean_s == 360.0


def test_lists_are_read_with_commas_between() -> None:
    settings = CloudSettings(
        regions=f"{SOMEWHERE}, europe-west4=http://there:2",
        projects="a,b",
        quotas="us-central1:nvidia-l4=3,us-central1:CPUS=9,SSD_TOTAL_GB=70,GPUS_ALL_REGIONS=8",
        trace="one.csv, us-central1-a/L4=two.json",
        accelerators="l4,a100",
    )
    assert region_urls(settings) == {"us-central1": "http://here:1", "europe-west4": "http://there:2"}
    assert project_names(settings) == ("a", "b")
    limits = {key[1:]: limit for key, limit in quota_limits(settings).items() if key[0] == "b"}
    assert limits == {
        ("us-central1", "NVIDIA_L4_GPUS"): 3,
        ("us-central1", "PREEMPTIBLE_NVIDIA_L4_GPUS"): 3,
        ("us-central1", "CPUS"): 9,
        ("us-central1", "SSD_TOTAL_GB"): 70,
        ("europe-west4", "SSD_TOTAL_GB"): 70,
        ("", "GPUS_ALL_REGIONS"): 8,
    }
    first, second = trace_files(settings)
    assert (first.path, first.market) == (Path("one.csv"), None)
    assert (second.path, second.market) == (Path("two.json"), Market("us-central1-a", "nvidia-l4"))
    assert len(markets_of(settings, ["us-central1"])) == 6


@pytest.mark.parametrize(
    "changed",
    [
        {"regions": ""},
        {"regions": "us-central1"},
        {"regions": "mars=http://here"},
        {"projects": " , "},
        {"quotas": "us-central1:LUCK=1"},
        {"quotas": "us-central1=1"},
        {"trace": "no-such-file.csv"},
        {"generate": True, "accelerators": "abacus"},
    ],
)
async def test_a_cloud_that_cannot_be_says_why_in_a_sentence(changed: dict[str, Any]) -> None:
    settings = CloudSettings(**{"regions": SOMEWHERE, "grpc_port": 0, "http_port": 0, **changed})
    with pytest.raises(UserError) as refused:
        async with serve_cloud(settings):
            pytest.fail("it serves")
    assert refused.value.hint


def test_flags_go_before_the_environment_and_reach_the_part_they_are_for() -> None:
    environ = {
        "TRADEWIND_SIMULATOR_SPEED": "5",
        "TRADEWIND_SIMULATOR_SECRET": "ours",
        "TRADEWIND_SIMULATOR_REGION_STOP_GRACE_S": "0.5",
        "TRADEWIND_SIMULATOR_REGION_IMAGES": '{"trainer:*": {"python": "/usr/bin/python3"}}',
    }
    settings = read_simulator_settings(environ, {"speed": 7.0, "region_port": 9000, "host": "127.0.0.2", "seed": None})
    assert settings.part == "all"
    assert settings.cloud.speed == 7.0
    assert settings.region.port == 9000
    assert settings.region.stop_grace_s == 0.5
    assert settings.region.secret == settings.cloud.secret == "ours"
    assert settings.region.host == "127.0.0.2"
    assert settings.region.images["trainer:*"].python == "/usr/bin/python3"


def test_a_region_alone_has_a_port_that_others_can_know() -> None:
    assert read_simulator_settings({}, {"part": "region"}).region.port == 8910
    assert read_simulator_settings({"TRADEWIND_SIMULATOR_REGION_PORT": "1234"}, {"part": "region"}).region.port == 1234
    assert read_simulator_settings({}).region.port == 0


@pytest.mark.parametrize(
    "flags",
    [{"part": "half"}, {"speed": 0}, {"speed": "fast"}, {"region_port": -1}, {"region_images": "{"}, {"token_s": 0}],
)
def test_settings_that_cannot_be_used_are_refused(flags: dict[str, object]) -> None:
    with pytest.raises(UserError):
        read_simulator_settings({}, flags)


@pytest.mark.parametrize(
    ("part", "regions"),
    [
        ("cloud", ""),
        ("cloud", "us-central1"),
        ("region", "us-central1,europe-west4"),
        ("region", SOMEWHERE),
        ("all", "us-central1-a"),
        ("all", "here"),
    ],
)
async def test_parts_and_regions_that_do_not_go_together_are_refused(part: Any, regions: str) -> None:
    settings = SimulatorSettings(part=part, cloud=CloudSettings(regions=regions))
    with pytest.raises(UserError):
        await main(settings, Stop())
