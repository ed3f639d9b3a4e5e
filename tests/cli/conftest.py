from collections.abc import AsyncIterator

import pytest

from tests.cli.fake_master import FakeMaster


@pytest.fixture
async def master() -> AsyncIterator[FakeMaster]:
    fake = FakeMaster()
    await fake.start()
    yield fake
    await fake.stop()
