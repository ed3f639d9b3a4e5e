"""A master that dies in the middle of a round: the next one finishes the round or gives it up, and nothing is lost."""

import asyncio
import os
import signal
from asyncio.subprocess import Process
from pathlib import Path

from tests.conftest import eventually
from tests.e2e.plain_nats import Seen, listen
from tests.e2e.terminal import PARTS, Terminal
from tests.e2e.test_live import PROVEN, a_live_run, proofs
from tests.e2e.traces import a_mark, nothing_is_left
from tests.e2e.watched import BOUND_S, lose_machine


class Bus(Seen):
    """What is said on the bus; whoever is to die at a word is killed as soon as it is heard."""

    word = ""
    victim: Process | None = None

    def append(self, said: tuple[str, dict[str, object]]) -> None:
        super().append(said)
        if self.victim is not None and said[1]["kind"] == self.word:
            self.victim.kill()
            self.victim = None

    async def has_killed(self) -> None:
        await eventually(lambda: self.victim is None, BOUND_S, f"the word {self.word}")


async def next_master(terminal: Terminal, last: Process) -> Process:
    await last.wait()
    await terminal.run(PARTS[1])
    return terminal.background[-1]


async def test_a_master_that_dies_after_a_halt_or_after_an_assignment_costs_no_step(tmp_path: Path) -> None:
    mark = a_mark()
    bus = Bus()
    async with Terminal(tmp_path, mark) as terminal, asyncio.TaskGroup() as tasks:
        run = await a_live_run(terminal, mark, workers="{min: 1, max: 3}")
        tasks.create_task(run.read())
        watching = tasks.create_task(listen(terminal.nats_url, bus))
        await run.until("three ranks train", world=3)

        master = terminal.background[1]
        bus.word, bus.victim = "job.halt", master
        lose_machine(run.workers()[0])
        await bus.has_killed()
        master = await next_master(terminal, master)
        await run.until("two ranks go on under the next master", world=2)
        await run.until("a new worker has joined", world=3, after=len(run.steps))

        bus.word, bus.victim = "job.assignment", master
        os.kill(run.workers()[0], signal.SIGTERM)
        await bus.has_killed()
        await next_master(terminal, master)
        await run.until("it is handed over", world=2, after=len(run.steps))
        run.let_go()
        code = await run.end()
        watching.cancel()
    assert code == 0, "\n".join(run.lines)
    reported = proofs(run)
    assert reported and len(set(reported)) == 1, reported
    assert reported[0].startswith(PROVEN)
    await nothing_is_left(mark)
