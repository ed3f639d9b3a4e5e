"""What the tests of the worker-agent share."""

from pathlib import Path

import pytest

from tests.conftest import Connect
from tests.worker.fakes import FakeMaster, light_torch


@pytest.fixture
async def master(connect: Connect) -> FakeMaster:
    fake = FakeMaster(await connect("master/fake"))
    await fake.listen()
    return fake


@pytest.fixture
def without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts that are started in this test are warm at once; for stories in which nothing is computed."""
    monkeypatch.setenv("PYTHONPATH", light_torch(tmp_path / "light"))
