"""`tradewind reap` checks each resource again before every attempt to remove it."""

from controlplane.clouds.outcomes import Done
from controlplane.reaper.findings import Found
from runtime.errors import UserError
from tests.reaper.builders import a_pool
from tests.reaper.test_removing import BusyCloud
from tradewind.cli.live_jobs import NobodyKnows
from tradewind.cli.orphans import orphan_view, remove_all


async def removed_with(*answers: UserError | str) -> tuple[str, str, int]:
    """The outcome, the problem, and the number of requests to the cloud."""
    cloud, left = BusyCloud(Done()), list(answers)
    found = Found(a_pool(), "nobody knows it")

    async def why_not_removed(_: Found) -> str:
        answer = left.pop(0)
        if isinstance(answer, UserError):
            raise answer
        return answer

    [view] = await remove_all(cloud, [found], [orphan_view(found, None, "")], why_not_removed)
    return view.outcome, view.trouble, cloud.asked


async def test_a_master_that_does_not_answer_once_ends_no_removal() -> None:
    assert await removed_with(NobodyKnows("Away."), "") == ("removed", "", 1)


async def test_the_one_that_answers_and_cannot_know_ends_it() -> None:
    trouble = "The master has another fleet"
    assert await removed_with(UserError(f"{trouble}.")) == ("failed", trouble, 0)
