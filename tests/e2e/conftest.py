"""What whole runs share: hosts and stores that are forked from one process with torch imported."""

import pytest

from tests.warm import Warm


@pytest.fixture(autouse=True)
def forked_hosts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forks the hosts and stores of a test, unless it does without torch or proves the cold start."""
    if not {"without_torch", "cold_start"} & set(request.fixturenames):
        warm: Warm = request.getfixturevalue("warm")
        for name, value in warm.environ.items():
            monkeypatch.setenv(name, value)


@pytest.fixture
def cold_start() -> None:
    """Makes each host import torch itself, as on a machine of a user."""
