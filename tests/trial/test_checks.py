"""Each check of the trial passes on a Google that behaves, and fails on one thing that is wrong."""

from dataclasses import replace

import pytest

from tests.clouds.simulated import REGION, ZONE
from tests.trial.conftest import DEFAULT_ACCOUNT, Scene
from tradewind.trial.checklist import CHECKS, clean_up, run_all
from tradewind.trial.money_checks import worst_case_usd
from tradewind.trial.verdicts import Result


async def test_services(scene: Scene) -> None:
    assert (await scene.check("services")).result is Result.PASS
    scene.change(services=("compute.googleapis.com",))
    verdict = await scene.check("services")
    assert verdict.result is Result.FAIL
    assert "gcloud services enable artifactregistry.googleapis.com" in verdict.text


@pytest.mark.slow
async def test_quotas(scene: Scene) -> None:
    await scene.ground.stage.order("quota", {"region": REGION, "metric": "PREEMPTIBLE_NVIDIA_L4_GPUS", "limit": 2})
    verdict = await scene.check("quotas")
    assert verdict.result is Result.PASS, verdict
    assert "PREEMPTIBLE_NVIDIA_L4_GPUS 2 of 2" in verdict.text
    await scene.ground.stage.order("quota", {"region": REGION, "metric": "PREEMPTIBLE_NVIDIA_L4_GPUS", "limit": 1})
    verdict = await scene.check("quotas")
    assert verdict.result is Result.FAIL
    assert "PREEMPTIBLE_NVIDIA_L4_GPUS (us-central1): 2 needed, 1 free" in verdict.text


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
    assert "rank 0: cuda:0 (NVIDIA L4), rank 1: cuda:0 (NVIDIA L4)" in verdict.text


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
    assert "after simulate-maintenance-event" in notice.text
    preemption = await scene.check("preemption")
    assert preemption.result is Result.PASS, preemption
    assert "a world of 2 trains again" in preemption.text


@pytest.mark.slow
async def test_a_preemption_without_a_notice(scene: Scene) -> None:
    scene.master.has_notices = False
    verdict = await scene.check("notice")
    assert (verdict.result, "without a notice" in verdict.text) == (Result.FAIL, True)


@pytest.mark.slow
async def test_a_preemption_after_which_no_machine_comes(scene: Scene) -> None:
    scene.master.replaces = False
    scene.bounds = replace(scene.bounds, replaced_s=0.5)
    trial = scene.trial()
    lines: list[str] = []
    await run_all(trial, ["preemption"], 50.0, lines.append)
    assert lines[0].startswith("FAIL  preemption    no world of 2 trained within 0.5 s")


@pytest.mark.slow
async def test_a_world_with_the_preempted_worker_in_it_is_no_replacement(scene: Scene) -> None:
    scene.master.keeps_noticed = True
    scene.bounds = replace(scene.bounds, replaced_s=0.5)
    lines: list[str] = []
    await run_all(scene.trial(), ["notice", "preemption"], 50.0, lines.append)
    assert [line.split()[0] for line in lines[:2]] == ["PASS", "FAIL"], lines


@pytest.mark.slow
async def test_removal(scene: Scene) -> None:
    verdict = await scene.check("removal")
    assert verdict.result is Result.PASS, verdict
    assert "was removed after" in verdict.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("on_scale", "told"),
    [
        ("ignores", "2 machines were there, and 1 should be"),
        ("removes all", "the wrong ones were removed"),
        ("refills", "came in place of what was removed"),
    ],
)
async def test_removal_that_goes_wrong(scene: Scene, on_scale: str, told: str) -> None:
    scene.master.on_scale = on_scale
    scene.bounds = replace(scene.bounds, removed_s=0.6)
    verdict = await scene.check("removal")
    assert (verdict.result, told in verdict.text) == (Result.FAIL, True), verdict


@pytest.mark.slow
async def test_stockout(scene: Scene) -> None:
    assert (await scene.check("stockout")).result is Result.SKIP
    await scene.ground.stage.stock_out()
    verdict = await scene.check("stockout")
    assert verdict.result is Result.PASS, verdict
    assert "does not have enough resources" in verdict.text
    assert await scene.ground.pools() == set()


@pytest.mark.slow
async def test_a_stockout_in_words_that_tradewind_does_not_know(scene: Scene) -> None:
    await scene.ground.stage.stock_out()
    scene.change(stockout_text="The moon is in the wrong phase.")
    verdict = await scene.check("stockout")
    assert (verdict.result, "Tradewind takes this for" in verdict.text) == (Result.FAIL, True)


@pytest.mark.slow
async def test_quota(scene: Scene) -> None:
    await scene.ground.stage.order("quota", {"region": REGION, "metric": "PREEMPTIBLE_NVIDIA_L4_GPUS", "limit": 1})
    verdict = await scene.check("quota")
    assert verdict.result is Result.PASS, verdict
    assert "2 × g2-standard-8 with room for 1" in verdict.text
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
    assert (verdict.result, "more than 5% apart" in verdict.text) == (Result.FAIL, True), verdict


@pytest.mark.slow
async def test_a_dry_run_changes_nothing_and_says_what_it_would_run(scene: Scene) -> None:
    scene.dry_run = True
    lines: list[str] = []
    assert await run_all(scene.trial(), CHECKS, 50.0, lines.append) == 0
    assert await scene.ground.pools() == set() and scene.master.submitted == []
    assert any("dry run: would run tradewind submit gke-trial" in line for line in lines)
    assert any("dry run: would run gcloud container node-pools create trial-stockout" in line for line in lines)


@pytest.mark.slow
async def test_money_that_is_spent_ends_what_costs_money(scene: Scene) -> None:
    await scene.ground.stage.order("price", {"zone": ZONE, "accelerator": "nvidia-l4", "price": 1_000_000.0})
    lines: list[str] = []
    code = await run_all(scene.trial(), ["gpu", "removal", "leftovers"], 0.01, lines.append)
    assert code == 3
    assert [line.split()[0] for line in lines[:3]] == ["PASS", "SKIP", "PASS"]
    assert "0.01 USD are spent" in lines[1]


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
    assert said[0].startswith("CLEANUP FAILED: The master")
    assert await scene.ground.pools() == set()


@pytest.mark.slow
async def test_the_worst_case_is_more_with_more_time(scene: Scene) -> None:
    trial = scene.trial()
    assert 0 < worst_case_usd(trial, 30) < worst_case_usd(trial, 120) < 50
