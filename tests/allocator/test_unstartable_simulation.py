"""Seeds of clusters in which no worker can start, and a planted bug that some seed must find."""

import pytest

from controlplane.allocator import prospects
from tests.allocator.simulation import run_seeds
from tests.allocator.unstartable_simulation import NO_STARTS, simulate_unstartable

SEEDS = 30


@pytest.mark.slow
def test_little_is_paid_where_no_worker_can_start_and_all_is_as_wanted_when_they_can() -> None:
    faults, broken = run_seeds(simulate_unstartable, range(SEEDS))
    assert not broken, "\n".join(broken)
    assert faults[NO_STARTS] > SEEDS / 2


def test_an_allocator_that_buys_again_at_once_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prospects, "is_blocked", lambda allocator, cluster, now_s: False)
    _, broken = run_seeds(simulate_unstartable, range(2))
    assert any("cannot start" in each for each in broken), broken
