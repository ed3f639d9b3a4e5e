"""What a group says of an operation, whenever that comes to its end."""

from datetime import timedelta
from typing import cast

import pytest
from torch._C._distributed_c10d import HashStore, Work

from tradewind.sdk.gloo import GlooGroup


class DoneTooLate:
    """The wait for it times out; then it is done, before anybody asks."""

    def __init__(self, *, success: bool) -> None:
        self._success = success
        self._waits = 0

    def wait(self, timeout: timedelta) -> bool:
        self._waits += 1
        if self._waits == 1:
            raise RuntimeError("Operation timed out!")
        if not self._success:
            raise RuntimeError("Connection closed by peer")
        return True

    def is_completed(self) -> bool:
        return True


@pytest.mark.parametrize("success", [True, False])
def test_an_operation_that_ends_just_after_the_wait_for_it_is_judged_by_how_it_ended(success: bool) -> None:
    group = GlooGroup(HashStore(), rank=0, size=1, address="127.0.0.1")
    assert group.finish(cast(Work, DoneTooLate(success=success)), lambda: False) is success
