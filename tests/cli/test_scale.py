"""`tradewind scale`, against a master that answers as told."""

from tests.cli.builders import asked
from tests.cli.fake_master import FakeMaster, a_view


async def test_scale_tells_how_many_workers_the_job_may_have(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    done = await asked(master, "scale", "mnist", "8")
    assert "may have 8 workers" in done.out
    assert "Next: tradewind status mnist --watch" in done.out


async def test_what_is_no_number_is_not_called_a_range(master: FakeMaster) -> None:
    done = await asked(master, "scale", "mnist", "many")
    assert (done.code, master.asked) == (2, [])
    assert "'many' is not a valid integer.\n" in done.err
