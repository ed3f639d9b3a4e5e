from collections.abc import AsyncIterator

import pytest

from tests.bootstrap.installation import Installation
from tests.bootstrap.servers import SERVERS, Server, SimulatedCloud, real_server, simulated_cloud, simulated_server


@pytest.fixture(params=SERVERS)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    """Each available kind of API server."""
    async with real_server() if request.param == "real" else simulated_server() as found:
        yield found


@pytest.fixture
async def cloud() -> AsyncIterator[SimulatedCloud]:
    async with simulated_cloud(controllers=True) as found:
        yield found


@pytest.fixture
async def there(server: Server) -> AsyncIterator[Installation]:
    installation = Installation(server)
    yield installation
    await installation.delete_all()
