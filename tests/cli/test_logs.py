"""`tradewind logs` with a fake master."""

from tests.cli.builders import asked, some_lines
from tests.cli.fake_master import FakeMaster, a_view


async def test_logs_of_a_rank(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    master.lines = some_lines()
    done = await asked(master, "logs", "mnist", "--rank", "1")
    assert (done.code, done.out, done.err) == (0, "", "[1] a warning\n")


async def test_the_tail_of_the_logs(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    master.lines = some_lines()
    done = await asked(master, "logs", "mnist", "--tail", "1")
    assert done.out == "[0] step 1\n"


async def test_a_job_that_printed_nothing_is_said_to(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    done = await asked(master, "logs", "mnist")
    assert (done.code, done.out) == (0, "")
    assert done.says("mnist") and done.hint == ["tradewind", "status", "mnist"]
