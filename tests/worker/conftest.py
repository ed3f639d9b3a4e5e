"""What the tests of the worker-agent share."""

import pytest

from tests.conftest import Connect
from tests.worker.fakes import FakeMaster


@pytest.fixture
async def master(connect: Connect) -> FakeMaster:
    fake = FakeMaster(await connect("master/fake"))
    await fake.listen()
    return fake
