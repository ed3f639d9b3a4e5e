"""`tradewind stop`, against a master that answers as told."""

import re
import time

from messages.workers import WrittenCheckpoint
from tests.cli.builders import asked
from tests.cli.fake_master import FakeMaster, a_view


async def test_stop_tells_that_the_job_has_stopped(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    done = await asked(master, "stop", "mnist")
    assert "Job mnist has stopped." in done.out
    assert "nothing is known about a checkpoint" in done.err
    assert master.asked == ["GET /v1/jobs/mnist", "POST /v1/jobs/mnist/stop"]
    assert master.stopped_with == b""


async def test_stop_waits_for_the_end_and_names_the_checkpoint_that_was_written(master: FakeMaster) -> None:
    older = WrittenCheckpoint(100, "/kept", 1.0)
    master.views["mnist"] = a_view(checkpoint=older)
    master.stops_after, master.saves = 3, WrittenCheckpoint(120, "/kept", 2.0)
    done = await asked(master, "stop", "mnist", "--grace", "40")
    assert master.stopped_with == b'{"grace_s":40.0}'
    assert done.err.count("waiting up to 40 s for worker a to end the loop body and save") == 1
    assert done.out.splitlines()[:2] == ["Job mnist has stopped.", "Checkpoint of step 120 written to /kept."]


async def test_stop_warns_if_steps_were_done_after_the_newest_checkpoint(master: FakeMaster) -> None:
    master.views["mnist"], master.saves = a_view(step=116), WrittenCheckpoint(115, "/kept", 2.0)
    done = await asked(master, "stop", "mnist", "--grace", "0")
    assert "warning: the newest checkpoint is of step 115 in /kept, and 2 later steps are lost" in done.err


async def test_stop_warns_if_no_checkpoint_was_written(master: FakeMaster) -> None:
    master.views["mnist"] = a_view(checkpoint=WrittenCheckpoint(100, "/kept", 1.0))
    done = await asked(master, "stop", "mnist", "--grace", "0")
    assert "Job mnist has stopped." in done.out and "Checkpoint" not in done.out
    assert "warning: no checkpoint was written when the job stopped; the newest is of step 100 in /kept" in done.err
    ended = await asked(master, "stop", "mnist")
    assert "Job mnist has stopped." in ended.out and "checkpoint" not in ended.err


async def test_stop_and_status_say_what_is_known_of_a_plain_scripts_checkpoint(master: FakeMaster) -> None:
    known = WrittenCheckpoint(at=time.time() - 12.0)
    master.views["mnist"] = a_view(checkpoint=known)
    assert re.search("newest checkpoint of its script, 1[0-9] s ago", (await asked(master, "status", "mnist")).out)
    done = await asked(master, "stop", "mnist")
    old = "its script's newest known checkpoint is [12][0-9] s old; it got SIGTERM to save once more by itself"
    assert re.search(old, done.err)
    master.views["mnist"], master.saves = a_view(checkpoint=known), WrittenCheckpoint(at=time.time())
    done = await asked(master, "stop", "mnist")
    assert re.search("^Its script wrote a checkpoint [0-9] s ago.$", done.out, re.MULTILINE)
