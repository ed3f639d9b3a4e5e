"""docs/reaping.md and docs/explain.md: every command on them runs, and what they name is there."""

import re
import shlex
from pathlib import Path

import pytest

from controlplane.reaper.ownership_labels import YOUNG_S
from controlplane.reaper.reaper import LOOK_S
from runtime.exit_codes import EXIT_FAILED
from tests.cli.command import tradewind
from tests.cli.fake_master import FakeMaster, a_view
from tests.reaper.ground import a_ground, a_master
from tradewind.cli.explain import ABOUT
from tradewind.cli.orphans import PATIENCE_S

DOCS = Path(__file__).parents[2] / "docs"
REAPING = (DOCS / "reaping.md").read_text()
EXPLAIN = (DOCS / "explain.md").read_text()
QUICK = {"TRADEWIND_GKE_POLL_FIRST_S": "0.02", "TRADEWIND_GKE_POLL_MOST_S": "0.05"}


def commands(page: str) -> list[list[str]]:
    """What follows two spaces is a remark."""
    blocks = re.findall(r"```\n(.*?)```", page, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("tradewind ")]
    return [shlex.split(re.split(r"\s{2,}", line)[0])[1:] for line in lines]


async def test_every_command_of_the_page_about_reaping_runs_and_exits_as_it_says(tmp_path: Path) -> None:
    async with a_ground(tmp_path) as ground:
        await ground.plant("forgotten", "lost")
        codes = []
        async with a_master() as master:
            for arguments in commands(REAPING):
                environ = {**QUICK, **master.environ} if "--clusters" not in arguments else QUICK
                done = await tradewind(*arguments, environ=environ, cwd=tmp_path)
                codes.append(done.code)
        assert codes == [EXIT_FAILED, EXIT_FAILED, 0, 0]
        assert await ground.clusters() == set()


def test_the_numbers_of_the_page_about_reaping_are_those_of_the_code() -> None:
    assert f"less than {YOUNG_S / 60:.0f} minutes ago" in REAPING
    assert f"up to {PATIENCE_S / 60:.0f} minutes" in REAPING
    assert f"looks every {LOOK_S / 60:.0f} minutes" in REAPING
    codes = re.findall(r"^\| (\d) \|", REAPING, re.MULTILINE)
    assert codes == ["0", "1", "2", "3"]


@pytest.fixture
async def mnist() -> FakeMaster:
    return FakeMaster(views={"mnist": a_view("mnist")})


async def test_every_command_of_the_page_about_explaining_runs(mnist: FakeMaster) -> None:
    await mnist.start()
    try:
        outcomes = [await tradewind(*arguments, environ=mnist.environ) for arguments in commands(EXPLAIN)]
    finally:
        await mnist.stop()
    assert [done.code for done in outcomes] == [0, 0, 0]


def test_every_kind_of_decision_is_on_the_page_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", EXPLAIN, re.MULTILINE)
    reported = {(kind, about) for about, kinds in rows for kind in re.findall(r"`(\w+)`", kinds)}
    assert reported == {(kind, str(about)) for kind, about in ABOUT.items()}
