"""The trial with a real master: machines, pods and trainers of a simulated cloud, and gcloud's stand-in beside it."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from messages.jobs import Pod
from tests.cli.command import without_ours
from tests.clouds.gke_fleets import read_gke_fleet
from tests.gcloud.stand_in import Google, answer
from tests.trial.conftest import JOB_FILE
from tradewind.client.jobfile import read_job
from tradewind.local.cloud import cloud_stack
from tradewind.local.fleet import KEY_FILE
from tradewind.trial.checklist import clean_up, run_all
from tradewind.trial.commands import READ_S, Ran
from tradewind.trial.gcloud import Gcloud
from tradewind.trial.stage import Bounds, Scarce, Trial

ROOT = Path(__file__).parents[2]
BOUNDS = Bounds(
    start_s=90.0,
    notice_s=30.0,
    replaced_s=90.0,
    removed_s=60.0,
    settled_s=3.0,
    gone_s=60.0,
    stockout_s=30.0,
    poll_s=0.25,
)


@pytest.mark.slow
async def test_a_job_lives_through_the_trial_and_leaves_nothing() -> None:
    """The simulator has no GPUs, so the check for them fails with the devices of the ranks."""
    example = (ROOT / "examples" / "fleet-simulator.yaml").read_text()
    async with cloud_stack(without_ours(os.environ), lambda text: None, example, 2) as stack:
        fleet = read_gke_fleet(stack.folder / "fleet.yaml")
        google = Google(
            url=stack.cloud.url,
            endpoint=fleet.cloud.endpoints.gke,
            key=str(stack.folder / KEY_FILE),
            project=fleet.cloud.project,
        )

        async def run(*argv: str, within_s: float = READ_S) -> Ran:
            got = await answer(google, argv[0], argv[1:])
            return Ran(got.code, got.out, got.err)

        spec = read_job(JOB_FILE)
        launch = msgspec.structs.replace(
            spec.launch,
            script=str(ROOT / "examples" / "char_transformer" / "train.py"),
            workdir=str(stack.folder),
            python=sys.executable,
            env={"OMP_NUM_THREADS": "1"},
        )
        trial = Trial(
            fleet=fleet,
            spec=msgspec.structs.replace(spec, launch=launch, pod=Pod()),
            gcloud=Gcloud(run, fleet.cloud.project, fleet.name, dry_run=False),
            api=stack.api,
            scarce=Scarce("g2-standard-8", "nvidia-l4", "us-central1-a"),
            billing_table="a-project.billing.export",
            bounds=BOUNDS,
        )
        lines: list[str] = []
        checks = ("gpu", "notice", "preemption", "removal", "leftovers", "ledger")
        await run_all(trial, checks, 50.0, lines.append)
        assert await clean_up(replace(trial), lines.append) == 0
    found = [tuple(line.split()[:2]) for line in lines[: len(checks)]]
    assert found == [("FAIL", "gpu"), *(("PASS", name) for name in checks[1:])], lines
    assert all(f"rank {rank}: cpu" in lines[0] for rank in (0, 1))
