"""Commands that the cluster-controller obeys or refuses, by their sender."""

import pytest

from agents.cluster.commands import ENVIRONMENTS_AT_MOST, epoch_is_over, epoch_is_unknown
from agents.cluster.events import KeepAsked, LeaderSeen, RemoveAsked, StopAsked
from agents.cluster.state import Rules
from messages.clusters import Answer, KeepWorkers, RemoveWorkers, WorkerTemplate
from messages.ids import Epoch, JobName, WorkerId
from tests.cluster.builders import JOB, OTHER_JOB, Story, a_controller, keep


class TestWhoLeads:
    def test_a_bus_that_lost_its_data_counts_epochs_again(self) -> None:
        story = a_controller().happens(LeaderSeen(100.0, Epoch(223))).keeps(1, epoch=223)
        story.happens(LeaderSeen(101.0, Epoch(19))).keeps(2, epoch=19)
        assert story.answer == Answer(ok=True)
        assert (story.state.wanted[JOB].count, story.saved.epoch) == (2, 19)
        assert not answered(story.keeps(3, epoch=223)).ok, "who led on the old bus does not lead here"

    def test_what_was_obeyed_before_a_leader_was_known_is_no_fence_for_it(self) -> None:
        forged = a_controller().keeps(1, epoch=2**52).saved
        story = a_controller(known=forged).happens(LeaderSeen(100.0, Epoch(5)))
        assert answered(story.keeps(2, epoch=5)).ok

    def test_of_two_living_masters_the_older_is_over_once_the_newer_has_spoken(self) -> None:
        story = a_controller().happens(LeaderSeen(100.0, Epoch(5))).keeps(1, epoch=5)
        story.happens(LeaderSeen(101.0, Epoch(9))).keeps(2, epoch=9)
        assert answered(story.keeps(3, epoch=5)).why == epoch_is_over(Epoch(5), Epoch(9))

    def test_a_claim_that_is_renewed_leaves_its_master_in_the_lead(self) -> None:
        story = a_controller().happens(LeaderSeen(100.0, Epoch(5))).keeps(1, epoch=5)
        assert answered(story.happens(LeaderSeen(101.0, Epoch(8))).keeps(2, epoch=5)).ok


def answered(story: Story) -> Answer:
    assert story.answer is not None
    return story.answer


class TestCommandsThatAreRefused:
    def refused(self, story: Story, command: KeepWorkers | RemoveWorkers, epoch: int = 1) -> str:
        before = story.state
        if isinstance(command, KeepWorkers):
            story.happens(KeepAsked(story.now_s, command, Epoch(epoch)))
        else:
            story.happens(RemoveAsked(story.now_s, command, Epoch(epoch)))
        assert story.answer is not None and not story.answer.ok
        assert (story.state.wanted, story.state.leadership) == (before.wanted, before.leadership)
        assert story.started == [] and story.ended == []
        return story.answer.why

    @pytest.mark.parametrize("count", [-1, 257, 10**12])
    def test_a_count_that_makes_no_sense(self, count: int) -> None:
        assert str(count) in self.refused(a_controller(), keep(count))

    def test_more_than_there_is_room_for_beside_other_jobs(self) -> None:
        story = a_controller(rules=Rules(max_workers=4)).keeps(3, OTHER_JOB).forgets_effects()
        assert "room for 4" in self.refused(story, keep(2))

    @pytest.mark.parametrize("job", ["", "No Such.Name", "x" * 64])
    def test_a_name_that_no_job_can_have(self, job: str) -> None:
        assert repr(job) in self.refused(a_controller(), keep(1, JobName(job)))

    @pytest.mark.parametrize(
        "template",
        [
            WorkerTemplate(slots=0),
            WorkerTemplate(slots=65),
            WorkerTemplate(python=""),
            WorkerTemplate(env={"A=B": "1"}),
            WorkerTemplate(env={"A": "nul\0"}),
            WorkerTemplate(env={"A": "x" * 40_000}),
        ],
    )
    def test_a_template_that_no_process_can_be_started_from(self, template: WorkerTemplate) -> None:
        assert self.refused(a_controller(), keep(1, template=template))

    def test_environments_that_do_not_fit_into_the_record_together(self) -> None:
        story = a_controller()
        large = WorkerTemplate(env={"A": "x" * 31_000})
        for number in range(8):
            story.happens(KeepAsked(story.now_s, keep(1, JobName(f"job{number}"), large), Epoch(1)))
        story.forgets_effects()
        assert str(ENVIRONMENTS_AT_MOST) in self.refused(story, keep(1, template=large))

    def test_a_master_of_an_older_epoch(self) -> None:
        story = a_controller().keeps(2, epoch=7).forgets_effects()
        over = epoch_is_over(Epoch(6), Epoch(7))
        assert self.refused(story, keep(5), epoch=6) == over
        assert self.refused(story, RemoveWorkers(JOB, (), ""), epoch=6) == over

    def test_a_command_without_an_epoch_once_a_leader_has_spoken(self) -> None:
        story = a_controller().keeps(2, epoch=7).forgets_effects().keeps(5, epoch=None)
        assert story.answer is not None and not story.answer.ok

    def test_the_epoch_outlives_the_controller(self) -> None:
        known = a_controller().keeps(0, epoch=7).saved
        over = epoch_is_over(Epoch(6), Epoch(7))
        assert self.refused(a_controller(known=known), keep(5), epoch=6) == over

    def test_an_epoch_above_the_newest_claim_to_lead(self) -> None:
        story = a_controller().happens(LeaderSeen(100.0, Epoch(7)))
        assert self.refused(story, keep(5), epoch=2**62) == epoch_is_unknown(Epoch(2**62), Epoch(7))
        assert story.keeps(2, epoch=7).answer == Answer(ok=True)

    def test_too_many_workers_at_once(self) -> None:
        everybody = RemoveWorkers(JOB, tuple(WorkerId(f"w{n}-aaaa") for n in range(1001)), "")
        assert "at most 1000" in self.refused(a_controller(), everybody)

    def test_new_workers_while_it_stops(self) -> None:
        story = a_controller().happens(StopAsked(100.0, "SIGTERM"))
        assert "stopping" in self.refused(story, keep(1))
