"""Invariant 4 over random markets, slow deletions and masters that crash, and planted bugs that the same seeds find."""

import math
from collections import Counter
from collections.abc import Callable

import pytest

from controlplane.budget import account
from controlplane.catalog.money import MicroDollars
from tests.budget import model
from tests.budget.model import Model, Overspent

SEEDS = 40


def test_what_is_spent_never_passes_the_budget_by_more_than_one_period(tell: Callable[[str], None]) -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        model = Model(seed)
        model.run()
        assert model.revoked == 0, f"seed {seed}: the budget was reported as free although nobody had raised it"
        seen += Counter(pauses=model.pauses, continued=model.continued, restarts=model.restarts)
        seen["blind periods"] += model.blind_periods
        seen["stopped"] += model.job.record.stop_why is not None
        seen["spot only"] += model.job.record.spot_only is not None
    tell(f"{SEEDS} seeds: " + ", ".join(f"{number} × {what}" for what, number in sorted(seen.items())))
    assert min(seen[what] for what in ("pauses", "continued", "restarts", "blind periods", "stopped", "spot only")) > 0


def _keep_no_reserve(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(account, "_while_released", lambda hourly: MicroDollars(0))


def _forget_machines_on_their_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(account, "_hourly_at_most", lambda ledger, limits: 0)


def _assume_nothing_while_blind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model, "BLIND_S", math.inf)


@pytest.mark.parametrize("plant", [_keep_no_reserve, _forget_machines_on_their_way, _assume_nothing_while_blind])
def test_a_planted_bug_is_caught(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(Overspent):
        for seed in range(SEEDS):
            Model(seed).run()
