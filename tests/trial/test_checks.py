"""Each check of the trial passes on a correct Google and fails on each fault."""

from dataclasses import replace

import pytest

from controlplane.clouds.outcomes import Unexplained
from tests.clouds.simulated import REGION, ZONE
from tests.trial.conftest import DEFAULT_ACCOUNT, Scene
from tests.trial.master import LOST
from tradewind.trial import job_checks
from tradewind.trial.checklist import CHECKS, CLEANUP_FAILED, EXIT_LIMIT, clean_up, money_is_spent, run_all
from tradewind.trial.money_checks import worst_case_usd
from tradewind.trial.refusal_checks import STOCKOUT_PROBE
from tradewind.trial.stage import no_world
from tradewind.trial.verdicts import Result, failed, line_of, skipped


async def test_services(scene: Scene) -> None:
    assert (await scene.check("services")).result is Result.PASS
    scene.change(services=("compute.googleapis.com",))
    verdict = await scene.check("services")
    assert verdict.result is Result.FAIL
    assert "services enable" in verdict.text and "artifactregistry.googleapis.com" in verdict.text
    assert "compute.googleapis.com" not in verdict.text


@pytest.mark.slow
async def test_quotas(scene: Scene) -> None:
    await scene.ground.stage.order("quota", {"region": REGION, "metric": "PREEMPTIBLE_NVIDIA_L4_GPUS", "limit": 2})
    verdict = await scene.check("quotas")
    assert verdict.result is Result.PASS, verdict
    assert "PREEMPTIBLE_NVIDIA_L4_GPUS 2 of 2" in verdict.text
    await scene.ground.stage.order("quota", {"region": REGION, "metric": "PREEMPTIBLE_NVIDIA_L4_GPUS", "limit": 1})
    verdict = await scene.check("quotas")
    assert verdict.result is Result.FAIL
    assert "PREEMPTIBLE_NVIDIA_L4_GPUS (us-central1):" in verdict.text and "1 free" in verdict.text


@pytest.mark.slow
async def test_node_account(scene: Scene) -> None:
    assert (await scene.check("node-account")).result is Result.PASS
    scene.change(roles={DEFAULT_ACCOUNT: ("roles/editor",)})
    assert (await scene.check("node-account")).result is Result.PASS
    scene.change(roles={DEFAULT_ACCOUNT: ("roles/container.defaultNodeServiceAccount",)})
    verdict = await scene.check("node-account")
    assert verdict.result is Result.FAIL
    assert f"--member=serviceAccount:{DEFAULT_ACCOUNT} --role=roles/artifactregistry.reader" in verdict.text


@pytest.mark.slow
async def test_gpu(scene: Scene) -> None:
    verdict = await scene.check("gpu")
    assert verdict.result is Result.PASS, verdict
    assert all(f"rank {rank}: {scene.master.device}" in verdict.text for rank in (0, 1))


@pytest.mark.slow
async def test_gpu_that_ranks_do_not_see(scene: Scene) -> None:
    scene.master.device = "cpu"
    verdict = await scene.check("gpu")
    assert verdict.result is Result.FAIL
    assert "rank 0: cpu" in verdict.text


@pytest.mark.slow
async def test_a_notice_and_a_preemption_that_training_survives(scene: Scene) -> None:
    notice = await scene.check("notice")
    assert notice.result is Result.PASS, notice
    assert "simulate-maintenance-event" in notice.text
    preemption = await scene.check("preemption")
    assert preemption.result is Result.PASS, preemption
    assert "world of 2" in preemption.text


@pytest.mark.slow
async def test_a_preemption_without_a_notice(scene: Scene) -> None:
    scene.master.has_notices = False
    verdict = await scene.check("notice")
    [machine] = scene.master.noticed
    assert verdict == failed(job_checks.no_notice(machine, LOST))


@pytest.mark.slow
async def test_a_preemption_after_which_no_machine_comes(scene: Scene) -> None:
    scene.master.replaces = False
    scene.bounds = replace(scene.bounds, replaced_s=0.5)
    trial = scene.trial()
    lines: list[str] = []
    await run_all(trial, ["preemption"], 50.0, lines.append)
    assert lines[0].startswith(line_of("preemption", failed(no_world(2, 0.5))))


@pytest.mark.slow
async def test_a_world_with_the_preempted_worker_in_it_is_no_replacement(scene: Scene) -> None:
    scene.master.keeps_noticed = True
    scene.bounds = replace(scene.bounds, replaced_s=0.5)
    lines: list[str] = []
    await run_all(scene.trial(), ["notice", "preemption"], 50.0, lines.append)
    assert [line.split()[0] for line in lines[:2]] == ["PASS", "FAIL"], lines


@pytest.mark.slow
async def test_removal(scene: Scene) -> None:
    await scene.trial().running()
    before = await machine_names(scene)
    verdict = await scene.check("removal")
    assert verdict.result is Result.PASS, verdict
    [gone] = before - await machine_names(scene)
    assert gone in verdict.text


async def machine_names(scene: Scene) -> set[str]:
    trial = scene.trial()
    return {machine.name for machine in await trial.gcloud.machines(trial.spec.name)}


@pytest.mark.slow
async def test_a_removal_that_does_not_happen(scene: Scene) -> None:
    scene.master.on_scale = "ignores"
    scene.bounds = replace(scene.bounds, removed_s=0.6)
    assert await scene.check("removal") == failed(job_checks.not_removed(2, 1, 0.6))


@pytest.mark.slow
async def test_a_removal_of_too_many_machines(scene: Scene) -> None:
    await scene.trial().running()
    before = ", ".join(sorted(await machine_names(scene)))
    scene.master.on_scale = "removes all"
    assert await scene.check("removal") == failed(job_checks.too_many_removed(before, "none"))


@pytest.mark.slow
async def test_a_removal_after_which_a_machine_comes_back(scene: Scene) -> None:
    scene.master.on_scale = "refills"
    verdict = await scene.check("removal")
    names = [job_checks.replaced_by(name) for name in await machine_names(scene)]
    assert verdict.result is Result.FAIL and verdict.text in names, verdict


@pytest.mark.slow
async def test_stockout(scene: Scene) -> None:
    assert (await scene.check("stockout")).result is Result.SKIP
    await scene.ground.stage.stock_out()
    verdict = await scene.check("stockout")
    assert verdict.result is Result.PASS, verdict
    assert ZONE in verdict.text
    assert await scene.ground.pools() == set()


@pytest.mark.slow
async def test_a_stockout_in_words_that_tradewind_does_not_know(scene: Scene) -> None:
    await scene.ground.stage.stock_out()
    text = "The moon is in the wrong phase."
    scene.change(stockout_text=text)
    verdict = await scene.check("stockout")
    assert verdict.result is Result.FAIL
    assert Unexplained.__name__ in verdict.text and text in verdict.text


@pytest.mark.slow
async def test_quota(scene: Scene) -> None:
    await scene.ground.stage.order("quota", {"region": REGION, "metric": "PREEMPTIBLE_NVIDIA_L4_GPUS", "limit": 1})
    verdict = await scene.check("quota")
    assert verdict.result is Result.PASS, verdict
    assert "2 × g2-standard-8" in verdict.text
    assert "PREEMPTIBLE_NVIDIA_L4_GPUS (1 free)" in verdict.text


@pytest.mark.slow
async def test_leftovers(scene: Scene) -> None:
    await scene.check("gpu")
    verdict = await scene.check("leftovers")
    assert verdict.result is Result.PASS, verdict


@pytest.mark.slow
async def test_leftovers_that_are_there(scene: Scene) -> None:
    scene.master.deletes_pools = False
    scene.bounds = replace(scene.bounds, gone_s=0.5)
    await scene.check("gpu")
    verdict = await scene.check("leftovers")
    assert verdict.result is Result.FAIL
    assert "pool a-job-pool" in verdict.text and "tradewind reap" in verdict.text


@pytest.mark.slow
async def test_a_disk_that_is_left(scene: Scene) -> None:
    scene.change(lost_disks=("pvc-1",))
    scene.bounds = replace(scene.bounds, gone_s=0.2)
    verdict = await scene.check("leftovers")
    assert (verdict.result, "disk pvc-1" in verdict.text) == (Result.FAIL, True)


@pytest.mark.slow
async def test_ledger(scene: Scene) -> None:
    assert (await scene.check("ledger")).result is Result.SKIP
    await scene.check("gpu")
    await scene.check("leftovers")
    assert (await scene.check("ledger")).result is Result.PASS
    scene.change(bill_factor=None)
    assert (await scene.check("ledger")).result is Result.SKIP


@pytest.mark.slow
async def test_a_ledger_that_differs_from_the_bill(scene: Scene) -> None:
    await scene.ground.stage.order("price", {"zone": ZONE, "accelerator": "nvidia-l4", "price": 100_000.0})
    await scene.check("gpu")
    await scene.check("leftovers")
    assert (await scene.check("ledger")).result is Result.PASS
    scene.master.ledger_factor = 0.8
    verdict = await scene.check("ledger")
    assert (verdict.result, "5%" in verdict.text) == (Result.FAIL, True), verdict


@pytest.mark.slow
async def test_a_dry_run_changes_nothing_and_says_what_it_would_run(scene: Scene) -> None:
    scene.dry_run = True
    lines: list[str] = []
    assert await run_all(scene.trial(), CHECKS, 50.0, lines.append) == 0
    assert await scene.ground.pools() == set() and scene.master.submitted == []
    skipped_at = {line.split()[1]: line for line in lines if line.startswith(Result.SKIP)}
    assert {"tradewind", "submit", "gke-trial"} <= set(skipped_at["gpu"].split())
    assert {"gcloud", "create", STOCKOUT_PROBE} <= set(skipped_at["stockout"].split())


@pytest.mark.slow
async def test_money_that_is_spent_ends_what_costs_money(scene: Scene) -> None:
    await scene.ground.stage.order("price", {"zone": ZONE, "accelerator": "nvidia-l4", "price": 1_000_000.0})
    lines: list[str] = []
    code = await run_all(scene.trial(), ["gpu", "removal", "leftovers"], 0.01, lines.append)
    assert code == EXIT_LIMIT
    assert [line.split()[0] for line in lines[:3]] == ["PASS", "SKIP", "PASS"]
    assert lines[1] == line_of("removal", skipped(money_is_spent(0.01)))


@pytest.mark.slow
async def test_cleaning_up_stops_the_job_and_deletes_the_probes(scene: Scene) -> None:
    await scene.check("gpu")
    await scene.ground.plant("trial-stockout", "none")
    said: list[str] = []
    assert await clean_up(scene.trial(), said.append) == 0
    assert scene.master.views["gke-trial"].phase == "stopped"
    assert await scene.ground.pools() == set()


@pytest.mark.slow
async def test_cleaning_up_deletes_a_probe_that_is_still_being_created(scene: Scene) -> None:
    await scene.ground.plant("trial-stockout", "none")
    busy = "Cluster is running incompatible operation operation-1."
    refusal = {"method": "DeleteNodePool", "code": "FAILED_PRECONDITION", "message": busy}
    await scene.ground.stage.order("refuse", {**refusal, "times": 2})
    said: list[str] = []
    assert await clean_up(scene.trial(), said.append) == 0, said
    assert await scene.ground.pools() == set()


@pytest.mark.slow
async def test_probes_are_deleted_although_the_master_is_gone(scene: Scene) -> None:
    await scene.ground.plant("trial-stockout", "none")
    await scene.master.stop()
    said: list[str] = []
    assert await clean_up(scene.trial(), said.append) == 1
    assert said[0].startswith(CLEANUP_FAILED) and scene.master.url in said[0]
    assert await scene.ground.pools() == set()


@pytest.mark.slow
async def test_the_worst_case_is_more_with_more_time(scene: Scene) -> None:
    trial = scene.trial()
    assert 0 < worst_case_usd(trial, 30) < worst_case_usd(trial, 120) < 50
