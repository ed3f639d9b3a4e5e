"""`tradewind reload`, against a master that answers as told."""

from tests.cli.builders import asked
from tests.cli.fake_master import FakeMaster, a_view


async def test_reload_tells_how_many_will_be_replaced(master: FakeMaster) -> None:
    master.views = {"mnist": a_view(world_size=4), "waiting": a_view("waiting", world_size=0)}
    done = await asked(master, "reload", "mnist")
    assert "Reloading mnist: 4 workers still run the old code." in done.out
    assert "Next: tradewind events mnist --follow" in done.out
    done = await asked(master, "reload", "waiting")
    assert "Reloading waiting: no worker runs old code." in done.out
