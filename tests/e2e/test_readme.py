"""Run each command of the README, or name the test that runs it. `docker compose up` only has its file checked."""

import re
import shutil
from pathlib import Path

from tests.e2e.terminal import PARTS, Terminal
from tests.e2e.traces import a_mark, nothing_is_left
from tradewind.cli import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS: list[str] = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
RUN_ELSEWHERE = {
    "make demo": "tests/e2e/test_demo_cloud.py",
    "make demo ARGS=--local": "tests/e2e/test_demo.py",
    "make test": "this very run",
}
CHECKED_ELSEWHERE = {"docker compose up --build": "tests/deploy/test_compose.py"}
"""Commands that need more than a test machine has: a test checks the file that they read."""
NOT_IN_THE_TABLE = {"completion"}


def tour() -> list[str]:
    """Return the commands that start the parts by hand and then use them."""
    return next(block for block in BLOCKS if "tradewind master" in block).splitlines()


def own_scripts() -> list[str]:
    """Return the commands that run a script: one with the SDK, one without."""
    return [line for block in BLOCKS for line in block.splitlines() if "tradewind run" in line]


def questions() -> list[str]:
    """Return the commands that show prices and a plan."""
    return next(block for block in BLOCKS if "tradewind plan" in block).splitlines()


def copy_examples(folder: Path) -> None:
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("checkpoints"))


def test_every_command_of_the_readme_is_run_or_its_file_checked_by_a_test() -> None:
    commands = [line for block in BLOCKS for line in block.splitlines()]
    assert commands
    assert tuple(tour()[: len(PARTS)]) == PARTS
    covered = (*tour(), *own_scripts(), *questions(), *RUN_ELSEWHERE, *CHECKED_ELSEWHERE)
    assert [line for line in commands if line not in covered] == []
    for where in (*RUN_ELSEWHERE.values(), *CHECKED_ELSEWHERE.values()):
        assert where == "this very run" or (ROOT / where).exists()


def test_the_table_of_commands_has_each_command_and_no_other() -> None:
    rows = re.findall(r"^\| (`tradewind .*?) \|", README, re.MULTILINE)
    named = [word for row in rows for word in re.findall(r"`(?:tradewind )?(\w+)", row)]

    assert sorted(named) == sorted(set(COMMANDS) - NOT_IN_THE_TABLE)


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
