"""A term keeps its fleet when the fleet file is edited."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from controlplane.fleet import files
from controlplane.lease.keeper import Leadership
from controlplane.master.leading import _term
from controlplane.master.settings import MasterSettings
from messages import subjects
from messages.labels import FLEET_LABEL
from runtime.bus import Bus
from runtime.settings import BusSettings
from runtime.yaml_files import yaml_file
from tests.capacity.test_crash import a_fleet
from tests.clouds.contract import found, until
from tests.clouds.simulated import SimulatedStage
from tests.master.terms import FIRST


async def test_a_fleet_file_that_is_edited_while_a_term_begins_does_not_give_it_two_fleets(
    bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_then_edit(path: Path, kind: Any) -> Any:
        data = yaml_file(path, kind)
        path.write_bytes(msgspec.yaml.encode({**data, "name": "edited"}))
        return data

    monkeypatch.setattr(files, "yaml_file", read_then_edit)
    bucket = await bus.bucket(subjects.STATE_BUCKET)
    leadership = Leadership(FIRST, lambda: FIRST)
    async with SimulatedStage.open(tmp_path) as stage:
        settings = MasterSettings(bus=BusSettings(url="nats://unused"), fleet=str(a_fleet(stage, tmp_path)))

        async def fleets() -> list[str]:
            return [cluster.labels[FLEET_LABEL] for cluster in found(await stage.cloud.clusters())]

        async with _term(bus, bucket, settings, leadership) as term:
            assert term.service.version().fleet == "a-fleet"
            await until(fleets, ["a-fleet"])
