"""`tradewind scale` with a fake master."""

from tests.cli.builders import asked
from tests.cli.fake_master import FakeMaster, a_view


async def test_scale_tells_how_many_workers_the_job_may_have(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    done = await asked(master, "scale", "mnist", "8")
    assert done.says("mnist", "8 workers")
    assert done.hint == ["tradewind", "status", "mnist", "--watch"]


async def test_what_is_no_number_is_not_called_a_range(master: FakeMaster) -> None:
    done = await asked(master, "scale", "mnist", "many")
    assert (done.code, master.asked) == (2, [])
    assert done.says("'many'", "integer") and "range" not in done.err
