"""`tradewind rm`, against a master that answers as told."""

from tests.cli.builders import asked
from tests.cli.fake_master import FakeMaster, a_view


async def test_rm_removes_a_job_that_has_ended_and_says_that_its_name_is_free(master: FakeMaster) -> None:
    master.views["mnist"] = a_view(phase="succeeded")
    done = await asked(master, "rm", "mnist")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Job mnist, which had succeeded, was removed")
    assert (master.asked, master.views) == (["DELETE /v1/jobs/mnist"], {})
    again = await asked(master, "rm", "mnist")
    assert (again.code, again.err.startswith("Error: There is no job 'mnist'.")) == (2, True)


async def test_rm_of_a_job_that_runs_is_one_sentence_and_what_to_do(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    done = await asked(master, "rm", "mnist")
    assert (done.code, done.err) == (2, "Error: Job 'mnist' is running.\nTry: tradewind stop mnist\n")
