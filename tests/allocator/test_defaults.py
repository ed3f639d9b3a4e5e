"""Limits and defaults of the allocator core: a checked table, so that no value changes unnoticed."""

from dataclasses import fields
from typing import Any

import pytest

from controlplane.allocator import events, fleet_order, state
from controlplane.allocator.effects import Place
from controlplane.allocator.offers import Offer
from controlplane.allocator.settings import AllocatorSettings
from tests.constants import ROOT, constants, defaults

LIMITS = {
    "facts.NOISE": 0.02,
    "learn_nodes.TOMBSTONES_AT_MOST": 200,
    "offers.NAMED_AT_MOST": 22,
}
SETTINGS = {
    "stockout_s": 30.0,
    "stockout_max_s": 900.0,
    "quota_s": 900.0,
    "quota_max_s": 14_400.0,
    "wary_s": 900.0,
    "loss_cooldown_s": 120.0,
    "retry_s": 1.0,
    "retry_max_s": 30.0,
    "unready_s": 10.0,
    "unready_timeout_s": 900.0,
    "linger_s": 60.0,
    "owed_s": 5.0,
    "arrival_s": 600.0,
    "recent_s": 300.0,
    "busy_tries": 3,
    "unexplained_tries": 5,
    "hang_s": 120.0,
    "fresh_s": 15.0,
    "doubt_s": 2.0,
    "refill_s": 3.0,
    "relist_s": 30.0,
    "relist_updating_s": 10.0,
    "list_timeout_s": 60.0,
    "quiet_s": 10.0,
    "plan_settle_s": 0.5,
    "plan_every_s": 60.0,
    "plan_timeout_s": 30.0,
    "release_s": 90.0,
    "idle_timeout_s": 600.0,
    "notice_idle_s": 120.0,
    "rest_max_s": 3600.0,
    "regrow_after_s": 1800.0,
    "regrow_after_max_s": 86_400.0,
    "start_give_back_s": 300.0,
    "start_retry_s": 600.0,
    "start_retry_max_s": 14_400.0,
    "controller_block_s": 120.0,
}
PAGES = [
    ("unready_timeout_s", 1, "fleet.md", "`unready_timeout_s` | {:g} |"),
    ("unready_s", 1, "fleet.md", "ranks are replaced after {:g} s"),
    ("start_give_back_s", 60, "fleet.md", "Machines are kept for {:g} minutes"),
    ("start_retry_s", 60, "fleet.md", "tried again with few nodes after {:g} minutes"),
    ("start_retry_max_s", 3600, "fleet.md", "up to {:g} hours"),
]


def test_every_limit_has_the_value_of_the_table() -> None:
    assert constants("controlplane/allocator") == LIMITS
    given = AllocatorSettings()
    assert {field.name: getattr(given, field.name) for field in fields(given)} == SETTINGS


@pytest.mark.parametrize(("setting", "unit_s", "page", "text"), PAGES)
def test_pages_name_the_limits_that_are_in_force(setting: str, unit_s: int, page: str, text: str) -> None:
    words = " ".join((ROOT / "docs" / page).read_text().split())
    assert text.format(SETTINGS[setting] / unit_s) in words


NOTHING: tuple[Any, ...] = (None, 0, False, "", (), frozenset())
GIVEN = {"Supply.settled": True, "Supply.reachable": True, "Offer.spot": True}


def test_what_is_not_given_is_unknown_or_has_not_happened() -> None:
    found = [each for each in vars(state).values() if isinstance(each, type) and each.__module__ == state.__name__]
    said = [each for each in vars(events).values() if isinstance(each, type) and each.__module__ == events.__name__]
    classes = [each for each in (*found, *said) if hasattr(each, "__dataclass_fields__")]
    assert len(classes) > 25
    known = dict(defaults(*classes, fleet_order.Supply, Offer, Place))
    parts = {name for name, default in known.items() if type(default).__module__ == state.__name__}
    assert parts == {"Allocator.listing", "Allocator.plans"}
    others = {name: default for name, default in known.items() if name not in parts and default not in NOTHING}
    quotas = others.pop("Allocator.quotas")
    assert (quotas.left, quotas.needs, others) == ({}, {}, GIVEN)
