"""`tradewind reload` with a fake master."""

from tests.cli.builders import asked
from tests.cli.fake_master import FakeMaster, a_view
from tradewind.cli.reload import reload_text


async def test_reload_tells_how_many_will_be_replaced(master: FakeMaster) -> None:
    master.views = {"mnist": a_view(world_size=4), "waiting": a_view("waiting", world_size=0)}
    done = await asked(master, "reload", "mnist")
    assert done.out.strip() == reload_text("mnist", 4) and done.says("mnist", "4 workers")
    assert done.hint == ["tradewind", "events", "mnist", "--follow"]
    done = await asked(master, "reload", "waiting")
    assert done.out.strip() == reload_text("waiting", 0)
