"""A job file, lines of ranks, and a command that asks a fake master."""

from pathlib import Path

from messages.api import LogLine
from messages.ids import Generation, Rank
from runtime.children import free_port
from tests.cli.command import Outcome, tradewind
from tests.cli.fake_master import FakeMaster

A_JOB = "{name: mnist, launch: {script: train.py}, workers: {max: 2}}"


def a_job_file(folder: Path, text: str = A_JOB) -> str:
    file = folder / "job.yaml"
    file.write_text(text)
    return str(file)


def some_lines() -> list[LogLine]:
    return [
        LogLine(at=1.0, rank=Rank(0), generation=Generation(1), line="step 0"),
        LogLine(at=1.5, rank=Rank(1), generation=Generation(1), line="a warning", stderr=True),
        LogLine(at=2.0, rank=Rank(0), generation=Generation(1), line="step 1"),
    ]


async def asked(master: FakeMaster, *arguments: str) -> Outcome:
    return await tradewind(*arguments, environ=master.environ)


def no_master() -> dict[str, str]:
    """The environment of a command that finds no master."""
    return {"TRADEWIND_API_URL": f"http://127.0.0.1:{free_port()}"}
