"""The schedule of a chaos run, and what is forged in it."""

import random
from itertools import pairwise

import pytest

from messages.api import WorkerView
from messages.codec import MAX_BYTES
from messages.ids import WorkerId
from tests.chaos.faults import KV_KINDS, OPENING, QUIET_S, Kind, Target, schedule
from tests.chaos.forge import Known, forge

FORGED = [kind for kind in Kind if kind.name.startswith(("FORGE_", "GARBAGE_"))]
WORKERS = [Known(job, WorkerView(WorkerId(f"w-{job}"), "east", "ready", "alive")) for job in ("kills", "slow")]


def test_the_same_seed_gives_the_same_faults_and_another_seed_gives_others() -> None:
    assert schedule(7, 20.0) == schedule(7, 20.0)
    assert schedule(7, 20.0) != schedule(8, 20.0)


@pytest.mark.parametrize("seed", range(20))
def test_twenty_minutes_have_every_kind_about_every_six_seconds_with_calm_stretches(seed: int) -> None:
    faults = schedule(seed, 20.0)
    assert {fault.kind for fault in faults} == set(Kind)
    assert 170 <= len(faults) <= 240
    at_s = [fault.at_s for fault in faults]
    assert at_s == sorted(at_s) and at_s[-1] < 1200
    assert sum(after - before >= QUIET_S for before, after in pairwise(at_s)) >= 15


@pytest.mark.parametrize("seed", range(20))
def test_one_minute_has_what_no_run_may_miss(seed: int) -> None:
    assert {fault.kind for fault in schedule(seed, 1.0)} >= set(OPENING)


@pytest.mark.parametrize("seed", range(20))
def test_no_machine_is_killed_around_a_rank_that_is_slow(seed: int) -> None:
    faults = [fault for fault in schedule(seed, 20.0) if fault.target is Target.SLOW]
    kills = [fault.at_s for fault in faults if fault.kind is Kind.KILL_MACHINE]
    slow = [fault for fault in faults if fault.kind is Kind.SLOW_RANK]
    assert kills and slow
    assert not any(fault.at_s - 30 < at_s < fault.at_s + fault.lasts_s for fault in slow for at_s in kills)


def test_kinds_can_be_left_out_also_those_that_a_run_begins_with() -> None:
    without = {*KV_KINDS, Kind.STALL_RANK}
    assert {fault.kind for fault in schedule(7, 20.0, without)} == set(Kind) - without


@pytest.mark.parametrize("kind", FORGED)
def test_everything_that_is_forged_fits_into_a_message_and_depends_on_the_draw_alone(kind: Kind) -> None:
    messages = [(message.subject, len(message.payload)) for message in forge(kind, random.Random(3), WORKERS)]
    assert messages and all(size <= MAX_BYTES for _, size in messages)
    assert messages == [(each.subject, len(each.payload)) for each in forge(kind, random.Random(3), WORKERS)]
