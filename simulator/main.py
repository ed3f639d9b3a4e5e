"""The simulator: the cloud and its regions in one process, or one part of it.

Part `all` runs everything here. Part `cloud` runs the cloud alone and needs the URLs of its regions; part `region` runs
one region. Separate parts can fail separately: the end of a region's process is the loss of a region.
"""

import contextlib
from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct, structs

from runtime.errors import UserError
from runtime.logs import logger
from runtime.process import Stop
from runtime.settings import read_settings
from simulator.cloud.model.names import is_location, is_zone
from simulator.cloud.settings import PREFIX, CloudSettings, items
from simulator.region.settings import RegionSettings

REGION_PREFIX = f"{PREFIX}REGION_"
DEFAULT_REGIONS = "us-central1,europe-west4"
DEFAULT_REGION_PORT = 8910

Part = Literal["all", "cloud", "region"]


class Parts(Struct, frozen=True, forbid_unknown_fields=True):
    part: Part = "all"


class SimulatorSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    part: Part = "all"
    cloud: CloudSettings = CloudSettings()
    region: RegionSettings = RegionSettings()
    """Settings that the regions of this process share."""


def read_simulator_settings(environ: Mapping[str, str], flags: Mapping[str, object] | None = None) -> SimulatorSettings:
    """Reads the settings. Flags are named like the cloud's fields, or like a region's with the prefix `region_`."""
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    part = read_settings(Parts, environ, {"part": given.pop("part", None)}, PREFIX).part
    own = set(CloudSettings.__struct_fields__)
    for_regions = {
        name.removeprefix("region_"): given.pop(name)
        for name in [*given]
        if name.startswith("region_") and name not in own
    }
    cloud = read_settings(CloudSettings, environ, given, PREFIX)
    port = DEFAULT_REGION_PORT if part == "region" else 0
    reported = {
        f"{REGION_PREFIX}SECRET": cloud.secret,
        f"{REGION_PREFIX}HOST": cloud.host,
        f"{REGION_PREFIX}ROLELESS_ACCOUNTS": cloud.roleless_accounts,
        f"{REGION_PREFIX}PORT": str(port),
        **environ,
    }
    images = for_regions.pop("images", None) or reported.pop(f"{REGION_PREFIX}IMAGES", None)
    if images is not None:
        for_regions["images"] = _decoded(str(images))
    region = read_settings(RegionSettings, reported, for_regions, REGION_PREFIX)
    return SimulatorSettings(part=part, cloud=cloud, region=region)


async def main(settings: SimulatorSettings, stop: Stop) -> int:
    """Serves until `stop`. Afterwards none of its processes is left."""
    here, elsewhere = _places(settings)
    async with contextlib.AsyncExitStack() as stack:
        found = dict(elsewhere)
        for index, name in enumerate(here):
            found[name] = await _start_region(stack, settings.region, name, index)
        if settings.part != "region":
            await _start_cloud(stack, settings.cloud, found)
        await stop.wait()
    return 0


async def _start_region(stack: contextlib.AsyncExitStack, common: RegionSettings, name: str, index: int) -> str:
    from simulator.region.region import Region

    port = common.port + index if common.port else 0
    folder = f"{common.run_dir}/{name}" if common.run_dir and index else common.run_dir
    region = await stack.enter_async_context(Region(structs.replace(common, region=name, port=port, run_dir=folder)))
    return region.url


async def _start_cloud(stack: contextlib.AsyncExitStack, settings: CloudSettings, regions: Mapping[str, str]) -> None:
    from simulator.cloud.server import serve_cloud

    urls = ",".join(f"{name}={url}" for name, url in regions.items())
    serving = await stack.enter_async_context(serve_cloud(structs.replace(settings, regions=urls)))
    logger().info("cloud_serves", gke=serving.grpc_address, url=serving.url, regions=", ".join(regions))


def _places(settings: SimulatorSettings) -> tuple[list[str], dict[str, str]]:
    """The regions that run here, and the URLs of the others."""
    default = {"all": DEFAULT_REGIONS, "region": settings.region.region, "cloud": ""}[settings.part]
    here: list[str] = []
    elsewhere: dict[str, str] = {}
    for item in items(settings.cloud.regions or default):
        name, _, url = item.partition("=")
        if not is_location(name) or is_zone(name):
            raise UserError(f"{name!r} is not a region.", "--region us-central1")
        if url:
            elsewhere[name] = url
        else:
            here.append(name)
    if settings.part == "cloud" and (here or not elsewhere):
        raise UserError("Part cloud needs the URL of each region.", "--region us-central1=http://127.0.0.1:8910")
    if settings.part == "region" and (elsewhere or len(here) != 1):
        raise UserError("Part region needs exactly one region, without a URL.", "--part region --region us-central1")
    return here, elsewhere


def _decoded(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        hint = '{"registry/trainer:*": {"python": "/path/to/python"}}'
        raise UserError(f"The images are not JSON: {error}", hint) from None
