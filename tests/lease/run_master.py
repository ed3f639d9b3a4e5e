"""A process that competes for the lease and, while it leads, writes lines `<monotonic> <name> <what> <epoch>`.

`python -m tests.lease.run_master <nats url> <name> <file>`
"""

import asyncio
import sys
import time
from pathlib import Path

from controlplane.lease.keeper import Leadership, Onlooker, hold
from runtime.process import Stop, run
from runtime.settings import BusSettings

ACT_EVERY_S = 0.02


class Diary(Onlooker):
    def __init__(self, file: Path, name: str) -> None:
        self._out = file.open("a", buffering=1)
        self._name = name

    def lost(self, why: str) -> None:
        self.note("lost", 0)

    def note(self, what: str, epoch: int, at_s: float | None = None) -> None:
        at_s = time.monotonic() if at_s is None else at_s
        self._out.write(f"{at_s:.4f} {self._name} {what} {epoch}\n")


async def main(stop: Stop) -> int:
    url, name, file = sys.argv[1:]
    diary = Diary(Path(file), name)

    async def lead(leadership: Leadership) -> None:
        diary.note("leads", leadership.epoch)
        while True:
            # Before it asks: it may be paused between the answer and the act, which nobody can rule out.
            at_s = time.monotonic()
            if leadership.may_act():
                diary.note("acts", leadership.epoch, at_s)
            await asyncio.sleep(ACT_EVERY_S)

    bus = BusSettings(url=url, name=name, connect_timeout_s=20.0)
    diary.note("waits", 0)
    async with asyncio.TaskGroup() as tasks:
        holding = tasks.create_task(hold(bus, name, lead, onlooker=diary), name="hold")
        await stop.asked.wait()
        holding.cancel()
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
