"""Every command of the README is run: here, or by the test that is named here."""

import re
import shutil
from pathlib import Path

from tests.e2e.terminal import PARTS, Terminal
from tests.e2e.traces import a_mark, nothing_is_left

ROOT = Path(__file__).parents[2]
BLOCKS: list[str] = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
RUN_ELSEWHERE = {
    "make demo": "tests/e2e/test_demo_cloud.py",
    "make demo ARGS=--local": "tests/e2e/test_demo.py",
    "docker compose up --build": "tests/deploy/test_compose.py",
    "make test": "this very run",
}


def tour() -> list[str]:
    """The block in which the parts are started by hand."""
    return next(block for block in BLOCKS if "tradewind master" in block).splitlines()


def own_scripts() -> list[str]:
    """The lines that run a script of one's own: with the SDK, and without."""
    return [line for block in BLOCKS for line in block.splitlines() if "tradewind run" in line]


def questions() -> list[str]:
    """What is asked before anything is spent."""
    return next(block for block in BLOCKS if "tradewind plan" in block).splitlines()


def copy_examples(folder: Path) -> None:
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("checkpoints"))


def test_every_command_of_the_readme_is_run_by_a_test() -> None:
    commands = [line for block in BLOCKS for line in block.splitlines()]
    assert commands
    assert tuple(tour()[: len(PARTS)]) == PARTS
    assert [line for line in commands if line not in (*tour(), *own_scripts(), *questions(), *RUN_ELSEWHERE)] == []
    for where in RUN_ELSEWHERE.values():
        assert where == "this very run" or (ROOT / where).exists()


async def test_scripts_of_ones_own_run_as_the_readme_says(tmp_path: Path) -> None:
    mark = a_mark()
    copy_examples(tmp_path)
    async with Terminal(tmp_path, mark) as terminal:
        with_sdk, without = [await terminal.run(line) for line in own_scripts()]
    assert "[0] certificate: 60 steps, 2,880 samples: 0 lost, 0 repeated" in with_sdk
    for said in (with_sdk, without):
        assert re.search(r"\[0\] step 59 loss \S+ world 4", said)
    assert (tmp_path / "snapshot.pt").is_file()
    await nothing_is_left(mark)


async def test_offers_and_plans_are_told_as_the_readme_says(tmp_path: Path) -> None:
    mark = a_mark()
    copy_examples(tmp_path)
    async with Terminal(tmp_path, mark) as terminal:
        offers, plan = [await terminal.run(line) for line in questions()]
    assert re.search(r"us-\S+ +L4 ", offers)
    assert "the fewest dollars for a step" in plan
    await nothing_is_left(mark)


async def test_the_parts_started_by_hand_do_what_the_readme_says(tmp_path: Path) -> None:
    mark = a_mark()
    copy_examples(tmp_path)
    said: dict[str, str] = {}
    async with Terminal(tmp_path, mark) as terminal:
        for line in tour():
            command = line.split()[1]
            if command == "submit":
                await terminal.until_healthy()
            if command == "logs":
                await terminal.until_phase("char-transformer", "running")
            said[command] = await terminal.run(line)
        await terminal.until_phase("char-transformer", "stopped")
    assert "char-transformer" in said["submit"]
    assert "generation 1" in said["events"]
    await nothing_is_left(mark)
