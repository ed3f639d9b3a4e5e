"""`tradewind plan`: its table, its JSON and its refusals."""

import json
from pathlib import Path

import pytest
from msgspec import structs

from controlplane.capacity.quotas import quota_views
from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.shipped import shipped_catalog
from controlplane.catalog.views import offer_list
from controlplane.clouds.interface import QuotaKey
from controlplane.planning.explanations import IDLE_GPUS, UNMEASURED, no_room
from controlplane.planning.market import Quotas
from controlplane.planning.measured_profiles import combined
from messages.offers import OfferList
from tests.cli.builders import no_master
from tests.cli.command import Outcome, tradewind
from tradewind.cli.offers import prices_of
from tradewind.cli.plan_report import print_plan
from tradewind.cli.planner import fleet_offers
from tradewind.cli.planner import planned as planned_of
from tradewind.client.jobfile import read_job

FLEET = Path(__file__).resolve().parents[2] / "examples" / "fleet-simulator.yaml"
A_JOB = """
name: opt
launch: {script: train.py}
workers: {min: 4, max: 8}
hyperparameters: {global_batch: 256}
capacity: {accelerators: [L4, A100], regions: [us-, europe-], max_usd_per_hour: 40}
"""
A_PROFILE = """
profile:
  gradient_bytes: 1400000000
  compute: {L4: {seconds_per_sample: 0.4}, A100: {seconds_per_sample: 0.12}}
"""


async def planned(folder: Path, text: str, *arguments: str) -> Outcome:
    file = folder / "job.yaml"
    file.write_text(text)
    return await tradewind("plan", str(file), *arguments, environ=no_master())


async def test_the_best_comes_first_then_what_lost_and_by_how_much(tmp_path: Path) -> None:
    done = await planned(tmp_path, A_JOB + A_PROFILE)
    assert done.code == 0, done.err
    head, _, best, *rest = done.out.splitlines()
    assert head.split()[:3] == ["NODES", "MACHINES", "STEPS/S"]
    assert best.startswith("best")
    assert "× L4" in best
    assert "\\n" not in done.out, "several kinds of machines stand below each other"
    assert any("A100" in line and "dearer" in line for line in rest)
    assert done.says("1,000 steps", "2026-08-22")
    assert f"opt: {IDLE_GPUS}." in done.err


async def test_a_fleet_limits_where_and_how_many(tmp_path: Path) -> None:
    done = await planned(tmp_path, A_JOB + A_PROFILE, "--fleet", str(FLEET), "--json")
    reported = json.loads(done.out)
    zones = {nodes["zone"] for nodes in reported["best"]["nodes"]}
    assert zones <= {"us-central1-a", "us-central1-b", "europe-west4-a"}
    assert sum(nodes["nodes"] for nodes in reported["best"]["nodes"]) >= 4
    assert (reported["proven"], reported["is_assumed"]) == (True, False)
    assert reported["alternatives"]


@pytest.mark.parametrize(("of_the_moment", "reported"), [(True, "current"), (False, "2026-08-22")])
def test_whose_prices_they_are_is_told(of_the_moment: bool, reported: str) -> None:
    assert (
        prices_of(OfferList((), "2026-08-22", "", True, of_the_moment)).split()[0 if of_the_moment else -1] == reported
    )


async def test_without_a_profile_no_steps_are_promised(tmp_path: Path) -> None:
    done = await planned(tmp_path, A_JOB)
    assert done.code == 0
    assert done.says("`profile`", "docs/planning.md")
    assert "STEPS" not in done.out
    assert "steps/s," not in done.out


async def test_without_a_profile_machines_are_compared_by_price_only(tmp_path: Path) -> None:
    job = A_JOB.replace("[L4, A100]", "[T4, V100, H100]").replace("min: 4, max: 8", "min: 1, max: 1")
    reported = json.loads((await planned(tmp_path, job, "--json")).out)
    placements = [reported["best"], *reported["alternatives"]]
    prices = [each["machines_micro_usd_per_hour"] for each in placements]
    assert len({each["nodes"][0]["accelerator"] for each in placements}) > 1
    assert prices == sorted(prices)
    invented = ("steps_per_s", "egress_micro_usd_per_hour", "micro_usd_per_1000_steps")
    assert {each[figure] for each in placements for figure in invented} == {None}
    for price, each in zip(prices[1:], placements[1:], strict=True):
        assert each["why"].startswith(f"{price / prices[0] - 1:.1%} dearer")
        assert "fast" not in each["why"] and "slow" not in each["why"]


async def test_a_deadline_without_a_profile_is_planned_and_not_promised(tmp_path: Path) -> None:
    in_time = A_JOB.replace("capacity: {", "capacity: {objective: deadline, deadline: {hours: 9, steps: 1000}, ")
    done = await planned(tmp_path, in_time)
    assert (done.code, UNMEASURED in done.out) == (0, True), done.err
    assert UNMEASURED not in (await planned(tmp_path, in_time + A_PROFILE)).out


async def test_a_contradiction_is_told_in_sentences_before_anything_is_made(tmp_path: Path) -> None:
    done = await planned(tmp_path, A_JOB.replace("max_usd_per_hour: 40", "max_usd_per_hour: 0.5") + A_PROFILE)
    assert done.code == 2
    assert str(tmp_path / "job.yaml") in done.error
    assert done.says("  capacity.max_usd_per_hour: ", "$0.50", "4 workers")


async def test_a_mistake_in_the_file_is_told_with_the_command_to_give_again(tmp_path: Path) -> None:
    done = await planned(tmp_path, A_JOB.replace("workers:", "wrokers:"))
    assert done.code == 2
    assert done.err.endswith(f"`tradewind plan {tmp_path / 'job.yaml'}`\n")


async def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    done = await tradewind("plan", str(tmp_path / "none.yaml"), environ=no_master())
    assert (done.code, str(tmp_path / "none.yaml") in done.error) == (2, True)


def test_the_quota_that_keeps_a_job_from_more_nodes_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    needs = {
        MachineKind("us-central1-a", "g2-standard-8", "L4", 1, True): {QuotaKey("us-central1", "SSD_TOTAL_GB"): 100}
    }
    quotas = quota_views(Quotas({QuotaKey("us-central1", "SSD_TOTAL_GB"): 450}, needs))
    catalog = shipped_catalog()
    known = structs.replace(offer_list(catalog, None, 0.0), quotas=quotas, quotas_page="https://quotas.example")
    job = tmp_path / "job.yaml"
    job.write_text(
        "name: opt\nlaunch: {script: train.py}\nworkers: {min: 1, max: 8}\nhyperparameters: {global_batch: 256}\n"
        "capacity: {objective: throughput, accelerators: [L4], zones: [us-central1-a], "
        "machine_types: [g2-standard-8]}\n" + A_PROFILE
    )
    spec = read_job(job, "plan")
    made = planned_of(spec, fleet_offers(known), "job.yaml", combined(spec, None))
    assert sum(made.placement.values()) == 4
    print_plan(made, spec, combined(spec, None), None, "prices", known.quotas_page, as_json=False)
    said = " ".join(capsys.readouterr().out.split())
    assert no_room(made.limited_by) in said and "SSD_TOTAL_GB" in said and "https://quotas.example" in said
