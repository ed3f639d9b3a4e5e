from collections.abc import AsyncIterator

import pytest

from tests.catalog.builders import PriceApi


@pytest.fixture
async def price_api() -> AsyncIterator[PriceApi]:
    api = PriceApi()
    await api.start()
    yield api
    await api.stop()
