"""`tradewind events` with a fake master."""

import json

from messages.api import EventLine
from tests.cli.builders import asked
from tests.cli.fake_master import FakeMaster, a_view
from tradewind.terminal.output import CONTINUED

GONE = "worker w1 is gone"
EXITED = "rank 0 exited with 1"
SUBMITTED = "the job was submitted"


async def test_events_come_with_their_reasons(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    master.events.append(EventLine(1.0, "mnist", "worker_gone", GONE, "ended by SIGKILL"))
    master.events.append(EventLine(2.0, "mnist", "trainer_failed", EXITED, '  File "a.py"\nSyntaxError'))
    done = await asked(master, "events", "mnist")
    gone, failed, *why = done.out.splitlines()
    assert gone.endswith(f"  {GONE} (ended by SIGKILL)")
    assert failed.endswith(f"  {EXITED}:")
    assert why == ['            File "a.py"', "          SyntaxError"]


async def test_events_name_the_messages_that_led_to_them_when_asked(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    cause = "worker.left from worker/w1-3f (9c1e)"
    master.events.append(EventLine(1.0, "mnist", "worker_gone", GONE, caused_by=cause))
    master.events.append(EventLine(2.0, "mnist", "job_submitted", SUBMITTED))
    assert cause not in (await asked(master, "events", "mnist")).out
    gone, why, submitted = (await asked(master, "events", "mnist", "--causes")).out.splitlines()
    assert gone.endswith(f"  {GONE}")
    assert why.startswith(CONTINUED) and why.endswith(f" {cause}")
    assert submitted.endswith(f"  {SUBMITTED}")


async def test_events_as_json_are_one_object_a_line(master: FakeMaster) -> None:
    master.views["mnist"] = a_view()
    master.events.append(EventLine(1.0, "mnist", "worker_gone", "worker w1 is gone"))
    master.end("mnist", "stopped")
    done = await asked(master, "events", "mnist", "--follow", "--json")
    assert [json.loads(line)["kind"] for line in done.out.splitlines()] == ["worker_gone", "job_stopped"]
