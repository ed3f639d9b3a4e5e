"""Removing one thing: what is in the way for a while is waited out, what will not pass is told."""

from controlplane.clouds.interface import PoolRef
from controlplane.clouds.outcomes import Busy, Done, NotFound, Outcome, Refused, Unreachable
from controlplane.reaper.removing import Fate, Removal, remove, remove_patiently
from tests.capacity.fake_cloud import FakeCloud
from tests.reaper.builders import a_pool, machines


async def nobody_s() -> str:
    return ""


class BusyCloud(FakeCloud):
    """Answers in turn; the last answer stays."""

    def __init__(self, *answers: Outcome) -> None:
        super().__init__()
        self._answers = list(answers)
        self.asked = 0

    async def delete_pool(self, pool: PoolRef) -> Outcome:
        self.asked += 1
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


async def test_an_operation_in_the_way_is_waited_for_and_told_once() -> None:
    cloud, told = BusyCloud(Busy("being made"), Done()), list[str]()
    assert await remove_patiently(cloud, a_pool(), 30.0, told.append, nobody_s) == Removal(Fate.GONE)
    assert told == ["being made"]


async def test_patience_ends() -> None:
    cloud = BusyCloud(Busy("being made"))
    removal = await remove_patiently(cloud, a_pool(), 0.0, lambda why: None, nobody_s)
    assert removal == Removal(Fate.STUCK, "being made")
    assert cloud.asked == 1


async def test_what_only_a_person_can_change_is_not_tried_again() -> None:
    cloud = BusyCloud(Refused("not allowed", "grant it"))
    removal = await remove_patiently(cloud, a_pool(), 30.0, lambda why: None, nobody_s)
    assert removal == Removal(Fate.STUCK, "not allowed; try: grant it")
    assert cloud.asked == 1


async def test_what_somebody_takes_up_while_something_is_in_the_way_is_kept() -> None:
    cloud, answers = BusyCloud(Busy("being made")), ["", "job mnist lives"]

    async def why_kept() -> str:
        return answers.pop(0)

    removal = await remove_patiently(cloud, a_pool(), 30.0, lambda why: None, why_kept)
    assert (removal, cloud.asked) == (Removal(Fate.KEPT, "job mnist lives"), 1)


async def test_while_nobody_knows_whether_it_is_still_to_go_nothing_is_removed_and_patience_holds() -> None:
    cloud, told = BusyCloud(Done()), list[str]()
    answers: list[str | Unreachable] = [Unreachable("the master does not answer"), ""]

    async def why_kept() -> str | Unreachable:
        assert cloud.asked == 0
        return answers.pop(0)

    assert await remove_patiently(cloud, a_pool(), 30.0, told.append, why_kept) == Removal(Fate.GONE)
    assert (told, cloud.asked) == (["the master does not answer"], 1)


async def test_what_nobody_knows_until_patience_ends_stays() -> None:
    cloud = BusyCloud(Done())

    async def why_kept() -> Unreachable:
        return Unreachable("the master does not answer")

    removal = await remove_patiently(cloud, a_pool(), 0.0, lambda why: None, why_kept)
    assert (removal, cloud.asked) == (Removal(Fate.STUCK, "the master does not answer"), 0)


async def test_what_somebody_else_has_removed_is_gone() -> None:
    assert await remove(BusyCloud(NotFound("no such pool")), a_pool()) == ""


async def test_a_machine_without_a_pool_is_not_touched() -> None:
    (machine,) = machines("lost")
    assert "only through their pools" in await remove(FakeCloud(), machine)
