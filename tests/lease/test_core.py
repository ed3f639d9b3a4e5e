"""Stories of a lease: how it is acquired, renewed, lost and released."""

from dataclasses import dataclass

import pytest

from controlplane.lease import events
from controlplane.lease.decide import EXPIRED, NOT_ACQUIRED, decide, leads_in, not_renewed_for, other_holds, stuck_for
from controlplane.lease.effects import Lead, LeaseEffect, ReadKey, StepDown, WriteKey
from controlplane.lease.invariants import check
from controlplane.lease.state import Lease, LeaseSettings, Phase, new_lease
from messages.ids import Epoch

ME, OTHER = "master/a", "master/b"
SETTINGS = LeaseSettings(ttl_s=2, margin_s=0.4, retry_s=0.1, answer_s=0.5)


@dataclass
class Stage:
    lease: Lease
    now_s: float = 10.0

    def happens(self, event: events.LeaseEvent) -> list[LeaseEffect]:
        before = self.lease
        decision = decide(before, event)
        self.lease = decision.state
        assert check(before, self.lease, decision.effects, self.now_s) == []
        assert decision.why
        assert decision.wake_at_s is None or decision.wake_at_s > self.now_s
        return list(decision.effects)

    def ticks(self, after_s: float = 0.0, pulse_s: float | None = None) -> list[LeaseEffect]:
        """Lets time pass; by default the main loop runs."""
        self.now_s = round(self.now_s + after_s, 6)
        return self.happens(events.Ticked(self.now_s, self.now_s if pulse_s is None else pulse_s))

    def reads(self, revision: int, holder: str | None) -> list[LeaseEffect]:
        return self.happens(events.KeyRead(self.now_s, self.lease.attempts, revision, holder))

    def sees(self, revision: int, holder: str | None) -> list[LeaseEffect]:
        return self.happens(events.KeySeen(self.now_s, revision, holder))

    def writes(self, revision: int) -> list[LeaseEffect]:
        return self.happens(events.Written(self.now_s, self.lease.attempts, revision))

    def conflicts(self) -> list[LeaseEffect]:
        return self.happens(events.Conflicted(self.now_s, self.lease.attempts))

    def gets_no_answer(self) -> list[LeaseEffect]:
        return self.happens(events.Unanswered(self.now_s, self.lease.attempts, "no answer in time"))


def a_standby() -> Stage:
    stage = Stage(new_lease(ME, SETTINGS))
    assert stage.ticks() == [ReadKey(1)]
    return stage


def a_leader() -> Stage:
    """A leader since second 10.1, in epoch 7."""
    stage = a_standby()
    stage.now_s += 0.1
    assert stage.reads(6, None) == [WriteKey(2, 6)]
    assert stage.writes(7) == [Lead(Epoch(7))]
    return stage


def test_where_nobody_leads_the_key_is_written_and_its_revision_is_the_epoch() -> None:
    stage = a_standby()
    assert stage.reads(0, None) == [WriteKey(2, 0)]
    assert stage.lease.phase is Phase.STANDBY
    assert stage.writes(31) == [Lead(Epoch(31))]
    assert stage.lease.why == leads_in(Epoch(31))


def test_while_another_leads_this_one_waits() -> None:
    stage = a_standby()
    assert stage.reads(5, OTHER) == []
    for revision in range(6, 20):
        assert stage.ticks(0.6) == []
        assert stage.sees(revision, OTHER) == []
    assert stage.lease.why == "master/b leads"


def test_an_expired_key_is_taken_over_at_once_at_its_markers_revision() -> None:
    stage = a_standby()
    stage.reads(5, OTHER)
    stage.now_s += 1.5
    assert stage.sees(6, None) == [WriteKey(2, 6)]


def test_a_key_that_vanished_without_a_marker_is_looked_for_when_it_is_due() -> None:
    stage = a_standby()
    stage.reads(5, OTHER)
    assert stage.ticks(1.9) == []
    assert stage.ticks(0.1) == [ReadKey(2)]
    assert stage.reads(0, None) == [WriteKey(3, 0)]


def test_a_key_that_never_expires_is_taken_over_once_its_holder_must_have_stopped() -> None:
    stage = a_standby()
    stage.reads(5, OTHER)
    stage.ticks(2.0)
    assert stage.reads(5, OTHER) == []
    assert stage.ticks(0.05) == []
    assert stage.ticks(0.25) == [ReadKey(3)]
    assert stage.reads(5, OTHER) == []
    assert stage.ticks(0.1) == [WriteKey(4, 5)]


def test_of_two_that_write_at_once_the_loser_looks_again_and_waits() -> None:
    stage = a_standby()
    stage.reads(0, None)
    assert stage.conflicts() == []
    assert stage.ticks(0.1) == [ReadKey(3)]
    assert stage.reads(9, OTHER) == []
    assert stage.ticks(1.0) == []


def test_a_leader_renews_every_third_of_the_time_to_live() -> None:
    stage = a_leader()
    assert stage.ticks(0.6) == []
    assert stage.ticks(0.1) == [WriteKey(3, 7)]
    assert stage.writes(8) == []
    assert stage.ticks(0.7) == [WriteKey(4, 8)]
    assert (stage.lease.epoch, stage.lease.phase) == (7, Phase.LEADER)


def test_a_leader_that_cannot_renew_stops_before_the_key_can_expire() -> None:
    stage = a_leader()
    stage.ticks(0.7)
    stage.ticks(0.8)
    assert stage.lease.may_act(11.69)
    assert not stage.lease.may_act(11.7)
    [down] = stage.ticks(0.1)
    assert down == StepDown(not_renewed_for(1.6))


def test_the_lease_is_counted_from_when_the_write_was_sent_not_from_its_answer() -> None:
    stage = a_leader()
    stage.ticks(0.7)
    stage.now_s += 0.5
    stage.writes(8)
    assert stage.lease.held_until_s == pytest.approx(10.8 + 1.6)


def test_an_acquisition_that_is_answered_too_late_makes_no_leader() -> None:
    stage = a_standby()
    stage.reads(0, None)
    stage.now_s += 1.6
    assert stage.writes(3) == [WriteKey(3, 3)]
    assert stage.lease.phase is Phase.STANDBY


def test_a_leader_that_was_paused_learns_from_whatever_comes_first_that_it_is_none() -> None:
    stage = a_leader()
    stage.ticks(0.7)
    stage.now_s += 5.0
    assert not stage.lease.may_act(stage.now_s)
    assert [type(effect) for effect in stage.writes(8)] == [StepDown]


def test_a_renewal_whose_answer_was_lost_is_found_by_reading() -> None:
    stage = a_leader()
    stage.ticks(0.7)
    assert stage.gets_no_answer() == []
    assert stage.ticks(0.1) == [ReadKey(4)]
    assert stage.reads(8, ME) == [WriteKey(5, 8)]
    stage.writes(9)
    assert stage.lease.epoch == 7


def test_a_leader_whose_key_is_somebody_elses_stops_at_once() -> None:
    stage = a_leader()
    assert stage.sees(8, OTHER) == [StepDown(other_holds(OTHER))]


def test_a_leader_whose_key_was_deleted_stops_at_once() -> None:
    stage = a_leader()
    assert stage.sees(8, None) == [StepDown(EXPIRED)]


def test_the_one_that_lost_asks_again_only_when_its_work_has_ended() -> None:
    stage = a_leader()
    stage.sees(8, None)
    assert stage.ticks(1.0) == []
    assert stage.happens(events.WorkEnded(stage.now_s)) == [WriteKey(3, 8)]
    assert stage.writes(9) == [Lead(Epoch(9))]


def test_an_own_write_that_was_never_answered_is_written_over_not_adopted() -> None:
    stage = a_standby()
    stage.reads(0, None)
    stage.gets_no_answer()
    stage.ticks(0.1)
    assert stage.reads(4, ME) == [WriteKey(4, 4)]
    assert stage.lease.phase is Phase.STANDBY


def test_an_older_revision_teaches_nothing() -> None:
    stage = a_leader()
    assert stage.sees(6, OTHER) == []
    assert stage.sees(7, OTHER) == []
    assert stage.lease.phase is Phase.LEADER


def test_an_answer_to_an_older_attempt_makes_no_leader() -> None:
    stage = a_standby()
    stage.reads(0, None)
    stage.gets_no_answer()
    stage.happens(events.Written(stage.now_s, 2, 4))
    assert stage.lease.phase is Phase.STANDBY


def test_while_the_bus_is_away_nothing_is_tried_and_the_lease_runs_out() -> None:
    stage = a_leader()
    stage.happens(events.BusLost(stage.now_s))
    assert stage.ticks(1.0) == []
    assert [type(effect) for effect in stage.ticks(0.6)] == [StepDown]


def test_when_the_bus_is_back_in_time_the_leader_continues() -> None:
    stage = a_leader()
    stage.happens(events.BusLost(stage.now_s))
    stage.now_s += 1.0
    assert stage.happens(events.BusBack(stage.now_s)) == [ReadKey(3)]
    assert stage.reads(7, ME) == [WriteKey(4, 7)]


def test_a_bus_that_forgot_everything_ends_what_rested_on_it() -> None:
    stage = a_leader()
    assert stage.happens(events.KeyForgotten(stage.now_s)) == [ReadKey(3)]
    assert stage.reads(0, None) == [StepDown(EXPIRED)]


def test_an_attempt_that_the_keeper_never_answers_does_not_block_for_ever() -> None:
    stage = a_standby()
    assert stage.ticks(1.4) == []
    assert stage.ticks(0.1) == [ReadKey(2)]


def a_leader_that_renews(stage: Stage, until_s: float, pulse_s: float) -> None:
    """Renews while the main loop shows no pulse after `pulse_s`."""
    while stage.now_s < until_s:
        asked = stage.ticks(0.7, pulse_s)
        assert [type(effect) for effect in asked] == [WriteKey]
        stage.writes(stage.lease.newest + 1)


def test_a_leader_whose_main_loop_is_busy_renews() -> None:
    stage = a_leader()
    a_leader_that_renews(stage, until_s=19.0, pulse_s=10.1)
    assert stage.lease.epoch == 7


def test_a_leader_whose_main_loop_is_stuck_renews_no_more_and_loses_the_lease() -> None:
    stage = a_leader()
    a_leader_that_renews(stage, until_s=19.8, pulse_s=10.1)
    assert stage.ticks(0.7, pulse_s=10.1) == []
    assert stage.lease.may_act(stage.now_s), "nobody else can have it yet"
    assert stage.ticks(1.0, pulse_s=10.1) == [StepDown(stuck_for(11.5))]
    assert not stage.lease.may_act(stage.now_s)


def test_a_main_loop_that_runs_again_in_time_keeps_the_lease() -> None:
    stage = a_leader()
    a_leader_that_renews(stage, until_s=19.8, pulse_s=10.1)
    assert stage.ticks(0.7, pulse_s=10.1) == []
    assert [type(effect) for effect in stage.ticks(0.1)] == [WriteKey]


def test_a_stuck_main_loop_is_looked_at_again_soon() -> None:
    stage = a_leader()
    decision = decide(stage.lease, events.Ticked(stage.now_s + 0.7, stage.now_s - 20.0))
    assert decision.wake_at_s == pytest.approx(stage.now_s + 0.7 + SETTINGS.retry_s)


def test_a_master_that_lost_the_lease_by_a_stuck_main_loop_waits_for_the_end_of_its_work() -> None:
    stage = a_leader()
    a_leader_that_renews(stage, until_s=19.8, pulse_s=10.1)
    stage.ticks(1.7, pulse_s=10.1)
    stage.sees(stage.lease.newest + 1, None)
    assert stage.ticks(5.0) == []
    assert [type(effect) for effect in stage.happens(events.WorkEnded(stage.now_s))] == [WriteKey]


def test_a_standby_whose_main_loop_is_stuck_does_not_ask_for_the_lease() -> None:
    stage = a_standby()
    stage.reads(4, OTHER)
    assert stage.ticks(5.0, pulse_s=-5.0) == []
    assert stage.sees(5, None) == []
    assert stage.lease.why == NOT_ACQUIRED
    assert stage.ticks(0.1) == [WriteKey(2, 5)]


def test_a_leader_that_was_paused_as_a_whole_says_that_it_could_not_renew() -> None:
    stage = a_leader()
    assert stage.ticks(20.0, pulse_s=10.1) == [StepDown(not_renewed_for(20.0))]
