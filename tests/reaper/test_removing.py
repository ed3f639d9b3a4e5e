"""Removal of one resource: a temporary obstacle is waited for, a lasting one is reported."""

from controlplane.clouds.interface import PoolRef
from controlplane.clouds.outcomes import Busy, Done, NotFound, Outcome, Refused, Unreachable, reason_of
from controlplane.reaper.removing import NO_POOL, Fate, Removal, remove, remove_patiently
from tests.capacity.fake_cloud import FakeCloud
from tests.reaper.builders import a_pool, machines

LIVES = "job mnist lives"
NO_ANSWER = "the master does not answer"


async def nobody_s() -> str:
    return ""


class BusyCloud(FakeCloud):
    """Gives its answers in turn; the last one stays."""

    def __init__(self, *answers: Outcome) -> None:
        super().__init__()
        self._answers = list(answers)
        self.asked = 0

    async def delete_pool(self, pool: PoolRef) -> Outcome:
        self.asked += 1
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


async def test_an_operation_in_the_way_is_waited_for_and_told_once() -> None:
    cloud, reported = BusyCloud(Busy("being made"), Done()), list[str]()
    assert await remove_patiently(cloud, a_pool(), 30.0, reported.append, nobody_s) == Removal(Fate.GONE)
    assert reported == ["being made"]


async def test_patience_ends() -> None:
    cloud = BusyCloud(Busy("being made"))
    removal = await remove_patiently(cloud, a_pool(), 0.0, lambda why: None, nobody_s)
    assert removal == Removal(Fate.STUCK, "being made")
    assert cloud.asked == 1


async def test_what_only_a_person_can_change_is_not_tried_again() -> None:
    refused = Refused("not allowed", "grant it")
    cloud = BusyCloud(refused)
    removal = await remove_patiently(cloud, a_pool(), 30.0, lambda why: None, nobody_s)
    assert removal == Removal(Fate.STUCK, reason_of(refused))
    assert cloud.asked == 1


async def test_what_somebody_takes_up_while_something_is_in_the_way_is_kept() -> None:
    cloud, answers = BusyCloud(Busy("being made")), ["", LIVES]

    async def why_not_removed() -> str:
        return answers.pop(0)

    removal = await remove_patiently(cloud, a_pool(), 30.0, lambda why: None, why_not_removed)
    assert (removal, cloud.asked) == (Removal(Fate.KEPT, LIVES), 1)


async def test_while_nobody_knows_whether_it_is_still_to_go_nothing_is_removed_and_patience_holds() -> None:
    cloud, reported = BusyCloud(Done()), list[str]()
    answers: list[str | Unreachable] = [Unreachable(NO_ANSWER), ""]

    async def why_not_removed() -> str | Unreachable:
        assert cloud.asked == 0
        return answers.pop(0)

    assert await remove_patiently(cloud, a_pool(), 30.0, reported.append, why_not_removed) == Removal(Fate.GONE)
    assert (reported, cloud.asked) == ([NO_ANSWER], 1)


async def test_what_nobody_knows_until_patience_ends_stays() -> None:
    cloud = BusyCloud(Done())

    async def why_not_removed() -> Unreachable:
        return Unreachable(NO_ANSWER)

    removal = await remove_patiently(cloud, a_pool(), 0.0, lambda why: None, why_not_removed)
    assert (removal, cloud.asked) == (Removal(Fate.STUCK, NO_ANSWER), 0)


async def test_what_somebody_else_has_removed_is_gone() -> None:
    gone = NotFound("no such pool")
    assert await remove(BusyCloud(gone), a_pool()) == ""


async def test_a_machine_without_a_pool_is_not_touched() -> None:
    (machine,) = machines("lost")
    assert await remove(FakeCloud(), machine) == NO_POOL
