"""`tradewind stop` with a fake master."""

import time

from messages.workers import WrittenCheckpoint
from tests.cli.builders import asked
from tests.cli.fake_master import STOPPING, FakeMaster, a_view
from tradewind.cli.stop import checkpoint_text, stopped_text

STOPPED = stopped_text(a_view(phase="stopped"))


async def test_stop_tells_that_the_job_has_stopped(master: FakeMaster) -> None:
    view = master.views["mnist"] = a_view()
    done = await asked(master, "stop", "mnist")
    assert STOPPED in done.out and "mnist" in STOPPED
    assert checkpoint_text(view, view)[1] in done.err
    assert master.asked == ["GET /v1/jobs/mnist", "POST /v1/jobs/mnist/stop"]
    assert master.stopped_with == b""


async def test_stop_waits_for_the_end_and_names_the_checkpoint_that_was_written(master: FakeMaster) -> None:
    older = WrittenCheckpoint(100, "/kept", 1.0)
    master.views["mnist"] = a_view(checkpoint=older)
    master.stops_after, master.saves = 3, WrittenCheckpoint(120, "/kept", 2.0)
    done = await asked(master, "stop", "mnist", "--grace", "40")
    assert master.stopped_with == b'{"grace_s":40.0}'
    assert done.err.count(STOPPING) == 1
    first, second = done.out.splitlines()
    assert first == STOPPED
    assert "120" in second and "/kept" in second


async def test_stop_warns_if_steps_were_done_after_the_newest_checkpoint(master: FakeMaster) -> None:
    master.views["mnist"], master.saves = a_view(step=116), WrittenCheckpoint(115, "/kept", 2.0)
    done = await asked(master, "stop", "mnist", "--grace", "0")
    assert done.says("warning: ", "115", "/kept", "2 later steps", "--grace")


async def test_stop_warns_if_no_checkpoint_was_written(master: FakeMaster) -> None:
    master.views["mnist"] = a_view(checkpoint=WrittenCheckpoint(100, "/kept", 1.0))
    done = await asked(master, "stop", "mnist", "--grace", "0")
    assert done.out.splitlines() == [STOPPED]
    assert done.says("warning: ", "no checkpoint", "100", "/kept")
    ended = await asked(master, "stop", "mnist")
    assert STOPPED in ended.out and "checkpoint" not in ended.err


async def test_stop_and_status_say_what_is_known_of_a_plain_scripts_checkpoint(master: FakeMaster) -> None:
    known = WrittenCheckpoint(at=time.time() - 12.0)
    before = master.views["mnist"] = a_view(checkpoint=known)
    shown = await asked(master, "status", "mnist")
    assert any(shown.says("checkpoint", "script", f"{age} s") for age in range(12, 20))
    done = await asked(master, "stop", "mnist")
    assert any(done.says("tradewind: ", "script", f"{age} s", "SIGTERM") for age in range(12, 30))
    master.views["mnist"], master.saves = a_view(checkpoint=known), WrittenCheckpoint(at=time.time())
    done = await asked(master, "stop", "mnist")
    written, text = checkpoint_text(before, a_view(checkpoint=master.saves))
    assert written and text.split()[:-3] == done.out.splitlines()[1].split()[:-3]
