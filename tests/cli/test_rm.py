"""`tradewind rm` with a fake master."""

from tests.cli.builders import asked
from tests.cli.fake_master import FakeMaster, a_view
from tradewind.client.errors import JobUnknown


async def test_rm_removes_a_job_that_has_ended_and_says_that_its_name_is_free(master: FakeMaster) -> None:
    master.views["mnist"] = a_view(phase="succeeded")
    done = await asked(master, "rm", "mnist")
    assert (done.code, done.hint) == (0, ["tradewind", "status"])
    assert done.says("mnist", "succeeded")
    assert (master.asked, master.views) == (["DELETE /v1/jobs/mnist"], {})
    again = await asked(master, "rm", "mnist")
    assert (again.code, again.error) == (2, JobUnknown("mnist", []).message)


async def test_rm_of_a_job_that_runs_is_one_sentence_and_what_to_do(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    done = await asked(master, "rm", "mnist")
    assert (done.code, done.hint) == (2, ["tradewind", "stop", "mnist"])
    assert done.error.endswith("running.")
