"""Limits and defaults of the job core: a checked table, so that no value changes unnoticed or contradicts a page."""

from pathlib import Path
from typing import Any

import pytest

from controlplane.job import events, state
from controlplane.job.workers import Worker
from tests.constants import ROOT, constants, defaults

LIMITS = {
    "changes.LONG_NOTICE_S": 60.0,
    "commands.ADDRESSED_AT_MOST": 500,
    "commands.HALTS_IN_TIME": 4,
    "commands.NAMED_AT_MOST": 100,
    "commands.REPEAT_S": 1.0,
    "doubts.NAMED_AT_MOST": 100,
    "forgetting.CLUSTER_FORGOTTEN_S": 3600.0,
    "learn.JUDGES_AGAIN_S": 0.5,
    "learn.SAVE_RETRY_S": 0.5,
    "learn.STORE_RETRY_S": 1.0,
    "learn_workers.FORGIVEN_S": 60.0,
    "learn_workers.HEARD_AGAIN_S": 0.5,
    "learn_workers.TOMBSTONES_AT_MOST": 20_000,
    "next_world.HANDOVER_LEAST_S": 0.5,
    "overdue.HUNDRED_ANSWER_S": 0.01,
    "overdue.OVERSLEPT_S": 0.1,
    "overdue.PARK_ALIVE_S": 2.0,
    "queries.DESERTED_S": 30.0,
    "queries.TOPOLOGY_FRESH_S": 2.5,
    "reconcile.BUSY_TICK_S": 0.5,
    "reconcile.QUIET_TICK_S": 1.0,
    "reload.PROVEN_S": 5.0,
    "scripts.FRESH_S": 5.0,
    "scripts.LIFE_AT_MOST_S": 600.0,
    "scripts.LIFE_IN_RESTARTS": 20,
    "sharing.DOUBLINGS_AT_MOST": 3,
    "stalls.LOCATES_IN_TIME": 4,
    "stalls.LOCATE_EVERY_S": 1.0,
    "stalls.STALL_LEAST_S": 60.0,
    "stalls.STALL_STEPS": 20,
    "stalls.STALL_UNMEASURED_S": 600.0,
    "state.GATHER_S": 2.5,
    "state.UNKNOWN_COST_S": 3.0,
    "stopping.LEAST_GRACE_S": 30.0,
    "stopping.MOST_GRACE_S": 86_400.0,
    "stopping.STEPS_OF_GRACE": 2,
    "texts.NAMED_AT_MOST": 4,
    "wants.DEADLINE_EVERY_S": 60.0,
    "wants.SECONDS_PER_HOUR": 3600.0,
}
PAGES = [
    ("changes.LONG_NOTICE_S", "architecture.md", "whose notice is longer than {:g} s"),
    ("next_world.HANDOVER_LEAST_S", "architecture.md", "with less than {:g} s left"),
    ("commands.REPEAT_S", "live-worlds.md", "a command to a trainer | {:g} s |"),
    ("overdue.PARK_ALIVE_S", "live-worlds.md", "extends the limit to at most {:g} s"),
    ("scripts.FRESH_S", "plain-scripts.md", "ready up to {:g} s later"),
    ("scripts.LIFE_IN_RESTARTS", "plain-scripts.md", "{:g} times what a restart costs"),
    ("state.UNKNOWN_COST_S", "plain-scripts.md", "assumes {:g} s"),
    ("reload.PROVEN_S", "training-scripts.md", "trained in the world for {:g} s"),
    ("stalls.STALL_STEPS", "training-scripts.md", "or {:g} steps if that is longer"),
    ("stopping.LEAST_GRACE_S", "jobs.md", "at least {:g} s"),
]


def test_every_limit_has_the_value_of_the_table() -> None:
    assert constants("controlplane/job") == LIMITS


@pytest.mark.parametrize(("limit", "page", "text"), PAGES)
def test_pages_name_the_limits_that_are_in_force(limit: str, page: str, text: str) -> None:
    words = " ".join((Path(ROOT) / "docs" / page).read_text().split())
    assert text.format(LIMITS[limit]) in words


NOTHING: tuple[Any, ...] = (None, 0, False, "", (), frozenset())
GIVEN = {"Job.is_submission_known": True, "Worker.presence": "alive", "Worker.seq": -1, "Worker.phase": "warming",
         "Worker.slots": 1, "Worker.address": "127.0.0.1"}  # fmt: skip


def test_what_is_not_given_is_unknown_or_has_not_happened() -> None:
    structs = [each for each in vars(state).values() if isinstance(each, type) and each.__module__ == state.__name__]
    said = [each for each in vars(events).values() if isinstance(each, type) and each.__module__ == events.__name__]
    assert len(structs) > 15 and len(said) > 15
    known = {name: default for name, default in defaults(*structs, *said, Worker) if default not in NOTHING}
    parts = {name: default for name, default in known.items() if type(default).__module__ == state.__name__}
    assert {name: default for name, default in known.items() if name not in parts} == GIVEN
    assert all(default == type(default)() for default in parts.values())
