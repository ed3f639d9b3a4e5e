"""docs/gke.md: commands of Tradewind run, those of gcloud and docker are parsed, numbers are those of the code."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.allocator.offers import pool_plan
from controlplane.catalog.shipped import shipped_catalog
from controlplane.clouds.gke.fleet_file import GkeFleet, gke_config
from controlplane.clouds.gke.quotas import needs
from controlplane.clouds.interface import PROJECT, Quota, QuotaKey
from controlplane.fleet.files import read_fleet
from controlplane.fleet.interpretation import complete, offers
from messages.ids import JobName
from tests.cli.command import tradewind_process as tradewind
from tests.cli.fake_master import FakeMaster, a_view
from tests.gcloud.syntax import PROGRAMS, Wrong, parse
from tests.reaper.ground import a_ground
from tradewind.trial.checklist import CHECKS
from tradewind.trial.refusal_checks import PROBE_NODES_AT_MOST
from tradewind.trial.setup_checks import ROLES, SERVICES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "gke.md").read_text()
SCRIPT = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
STUBS = (*PROGRAMS, "sudo", "tar", "make", "git")
OURS = (".venv/bin/tradewind", ".venv/bin/nats-server", "deploy/gke-trial.sh")
RECORD = '#!/bin/sh\nprintf "%s\\0" "{name}" "$@" >> "$RECORD"\nprintf "\\n" >> "$RECORD"\n'


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[str]]]:
    """A folder in which the whole page was run, and every command that it gave, variables replaced."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "examples").symlink_to(ROOT / "examples")
    for name in (*(f"bin/{stub}" for stub in STUBS), *OURS):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(RECORD.format(name=name.removeprefix("bin/")))
        path.chmod(0o755)
    environ = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "RECORD": str(folder / "record"), "HOME": str(folder)}
    environ["USER"] = "me"
    command = ["bash", "-euo", "pipefail", "-c", f"{SCRIPT}\nwait"]
    ran = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = (folder / "record").read_text().split("\n")
    return folder, [line.rstrip("\0").split("\0") for line in lines if line]


Recorded = tuple[Path, list[list[str]]]


def test_every_command_of_google_and_docker_is_one_that_they_take(recorded: Recorded) -> None:
    given = [argv for argv in recorded[1] if argv[0] in PROGRAMS]
    assert len(given) > 25
    for program, *argv in given:
        parse(program, argv)
    assert all(
        "--project=my-project" in argv
        for argv in given
        if argv[0] == "gcloud" and argv[1] not in ("auth", "config", "projects")
    )


@pytest.mark.parametrize(
    "wrong",
    [
        "gcloud compute instances delte x --zone=us-central1-a",
        "gcloud compute instances delete x",
        "gcloud compute instances delete x --zone=$ZONE",
        "gcloud services enable compute",
        "docker build -f deploy/Dockerfile --build-arg CUDA=1 -t x .",
    ],
)
def test_a_wrong_command_would_be_found(wrong: str) -> None:
    program, *argv = shlex.split(wrong)
    with pytest.raises(Wrong):
        parse(program, argv)


def test_the_fleet_file_of_the_page_can_be_used(recorded: Recorded) -> None:
    fleet = read_fleet(recorded[0] / "fleet.yaml")
    assert isinstance(fleet, GkeFleet)
    assert fleet.cloud.project == "my-project"
    assert fleet.nodes.service_account == "tradewind-nodes@my-project.iam.gserviceaccount.com"
    assert [(cluster.name, cluster.location) for cluster in fleet.clusters] == [("spot-us", "us-central1-a")]
    (pushed,) = (argv[2] for argv in recorded[1] if argv[:2] == ["docker", "push"])
    assert pushed == fleet.pods.image


def test_the_accounts_get_the_roles_that_the_trial_checks(recorded: Recorded) -> None:
    given = [argv for argv in recorded[1] if argv[1:3] == ["projects", "add-iam-policy-binding"]]
    granted = {argv[5].removeprefix("--role=") for argv in given if "tradewind-nodes@" in argv[4]}
    assert granted == set(ROLES)
    (enabled,) = (set(argv) for argv in recorded[1] if argv[1:3] == ["services", "enable"])
    assert set(SERVICES) < enabled


@pytest.mark.slow
async def test_every_command_of_tradewind_runs(recorded: Recorded, tmp_path: Path) -> None:
    folder, given = recorded
    places = [(argv, at) for argv in given for at, word in enumerate(argv) if word.endswith("/bin/tradewind")]
    commands = [argv[at + 1 :] for argv, at in places]
    job = "char-transformer-gke"
    master = FakeMaster(views={})
    await master.start()
    codes: dict[str, int] = {}
    try:
        for arguments in commands:
            if arguments[0] in ("master", "reap"):
                continue
            done = await tradewind(*arguments, environ=master.environ, cwd=folder)
            codes[arguments[0]] = done.code
            if arguments[0] == "submit":
                master.views[job] = a_view(job)
    finally:
        await master.stop()
    assert codes == dict.fromkeys(("plan", "submit", "status", "events", "logs", "explain", "cost", "stop"), 0)
    (started,) = (arguments for arguments in commands if arguments[0] == "master")
    refused = await tradewind(*started, environ={}, cwd=tmp_path)
    assert "fleet.yaml" in refused.err and "No such option" not in refused.err
    async with a_ground(tmp_path) as ground:
        for arguments in (arguments for arguments in commands if arguments[0] == "reap"):
            done = await tradewind(*arguments, "--assume-no-jobs", environ={}, cwd=tmp_path)
            assert done.code == 0, done.err
        assert await ground.clusters() == set()


@pytest.mark.slow
def test_every_command_of_the_trial_has_options_that_it_knows(recorded: Recorded, tmp_path: Path) -> None:
    """In a folder without a fleet file, so that it ends as soon as its options are read."""
    environ = {"PATH": f"{recorded[0] / 'bin'}:/usr/bin:/bin", "RECORD": "/dev/null", "PYTHON": sys.executable}
    for argv in (argv for argv in recorded[1] if argv[0] == "deploy/gke-trial.sh"):
        command = [str(ROOT / argv[0]), *argv[1:]]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=tmp_path, env=environ)
        assert ran.returncode == 0 or ran.stderr.startswith("There is no file fleet.yaml"), ran.stderr


def test_every_check_of_the_trial_is_described_in_order() -> None:
    table = PAGE.partition("| check |")[2]
    assert re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE) == list(CHECKS)
    assert f"room for {PROBE_NODES_AT_MOST} or more" in table


def test_the_prices_are_those_of_the_catalog() -> None:
    catalog = shipped_catalog()
    offer = catalog.find("us-central1-a", "g2-standard-8", "L4")
    assert offer is not None and offer.spot_micro_usd_per_hour and offer.on_demand_micro_usd_per_hour
    assert f"| {offer.spot_micro_usd_per_hour / 1e6:.2f} |" in PAGE
    assert f"| {offer.on_demand_micro_usd_per_hour / 1e6:.2f} |" in PAGE
    assert f"list prices of {catalog.date}" in PAGE
    patterns = (r"\| (0\.\d+) \|\n\| a sys", r"(0\.\d+) each")
    cluster, machine = (float(re.findall(pattern, PAGE)[0]) for pattern in patterns)
    fixed = cluster + 2 * machine
    assert f"| **{fixed + 2 * offer.spot_micro_usd_per_hour / 1e6:.2f}** |" in PAGE
    assert f"Without workers {fixed:.2f} USD" in PAGE


def test_the_quotas_are_those_that_the_example_fleet_takes() -> None:
    fleet = read_fleet(ROOT / "examples" / "fleet-gke.yaml")
    assert isinstance(fleet, GkeFleet)
    plan = complete(fleet, pool_plan(JobName("a-job"), offers(fleet)[0], 1), {})
    rows = dict(re.findall(r"^\| `([A-Z0-9_]+)`[^|]*\| (\d+) \| \d+ \|$", PAGE, re.MULTILINE))
    known = [
        Quota(QuotaKey(scope, metric), 1000.0, 0.0)
        for scope in (PROJECT, "us-central1")
        for metric in rows
        if (scope == PROJECT) == metric.endswith("ALL_REGIONS")
    ]
    assert {key.metric: amount for key, amount in needs(plan, known, gke_config(fleet)).items()} == {
        metric: float(amount) for metric, amount in rows.items()
    }
    both = re.findall(r"^\| `SSD_TOTAL_GB` \| \d+ \| (\d+) \|$", PAGE, re.MULTILINE)
    assert both == [str(2 * fleet.nodes.disk.size_gb + fleet.system_pool.disk.size_gb + 30)]
