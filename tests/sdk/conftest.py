"""What the tests of the SDK share."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.sdk.transfers import Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    with ExitStack() as closing:
        yield Stage(closing)
