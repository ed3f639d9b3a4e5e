"""`GkeCloud` fulfils the contract of every cloud, on the stand-in and on the simulator."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clouds.contract import CloudContract
from tests.clouds.simulated import SimulatedStage
from tests.clouds.stand_in.stage import StandInStage


class TestGkeOnAStandIn(CloudContract):
    @pytest.fixture
    async def stage(self, tmp_path: Path) -> AsyncIterator[StandInStage]:
        async with StandInStage.open(tmp_path) as stage:
            yield stage


class TestGkeOnTheSimulator(CloudContract):
    @pytest.fixture
    async def stage(self, tmp_path: Path) -> AsyncIterator[SimulatedStage]:
        async with SimulatedStage.open(tmp_path) as stage:
            yield stage
