"""docs/training-scripts.md: its loops run as they stand, and every name it promises is there."""

import inspect
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tradewind.sdk.certificate import Certificate
from tradewind.sdk.diagnostics import say
from tradewind.sdk.run import Run
from tradewind.sdk.starting import resuming

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "training-scripts.md").read_text()
SCRIPTS = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))
PROMISED = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
TORCHRUN = [str(Path(sys.executable).parent / "torchrun"), "--standalone", "--nproc-per-node", "2"]


def output_of(command: list[str], script: str, folder: Path) -> str:
    (folder / script).write_text(SCRIPTS[script])
    ended = subprocess.run(
        [*command, str(folder / script)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_loop_before_runs(tmp_path: Path) -> None:
    assert output_of([sys.executable], "before.py", tmp_path) == ""


@pytest.mark.parametrize("command", [[sys.executable], TORCHRUN])
def test_the_loop_after_runs_alone_and_under_torchrun_and_prints_what_the_page_says(
    tmp_path: Path, command: list[str]
) -> None:
    assert output_of(command, "after.py", tmp_path) == PROMISED[0]


def test_the_loop_after_differs_by_a_handful_of_lines() -> None:
    before, after = (set(SCRIPTS[name].splitlines()) for name in ("before.py", "after.py"))
    assert len(after - before) <= 8


def test_every_argument_of_a_run_has_a_row() -> None:
    rows = " ".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `"))
    assert [name for name in inspect.signature(Run).parameters if f"`{name}`" not in rows] == []


def test_every_public_name_on_the_page_exists() -> None:
    public = {name for name, _ in inspect.getmembers(Run) if not name.startswith("_")} | {"certificate"}
    assert set(re.findall(r"run\.([a-z_]+)", PAGE)) <= public
    reported = {"steps", "samples", "lost", "repeated", "wrong", "first_bad", "recomputed"}
    assert reported <= {field.name for field in fields(Certificate)}
    assert all(f"`{name}`" in PAGE for name in reported | {"holds"})


def test_the_sentence_after_a_resume_is_the_certificates_own() -> None:
    certificate = Certificate(steps=300, samples=14_400, recomputed=50, resumed_at=(50,))
    assert PROMISED[2] == certificate.message() + "\n"
    resumed = Certificate(steps=300, samples=14_400, resumed_at=(50,))
    _, end = resumed.message().split("0 repeated")
    assert f"`{end}`" in PAGE


def test_the_line_of_a_run_that_continues_is_the_runs_own(capsys: pytest.CaptureFixture[str]) -> None:
    say(resuming(50, 300, Path("folder")))
    assert PROMISED[1] == capsys.readouterr().err
