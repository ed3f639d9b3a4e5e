"""`tradewind reap` on the simulator: what it shows, removes and refuses."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controlplane.clouds.outcomes import Unfinished
from controlplane.reaper.findings import OWNED_AGAIN
from runtime.exit_codes import EXIT_UNREACHABLE
from tests.cli.builders import no_master
from tests.cli.command import Outcome, tradewind
from tests.cli.fake_master import a_view
from tests.clouds.contract import is_reached, until
from tests.reaper.ground import CLUSTER, FLEET, Ground, a_ground, a_master
from tradewind.cli.orphans import SILENCE

FOUND = 1
QUICK = {"TRADEWIND_GKE_POLL_FIRST_S": "0.02", "TRADEWIND_GKE_POLL_MOST_S": "0.05", "TRADEWIND_GKE_READ_S": "2"}
LIVES = a_view("lives")
STOPPED = a_view("over", "stopped")


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with a_ground(tmp_path) as ground:
        yield ground


async def reap(ground: Ground, *arguments: str, environ: dict[str, str]) -> Outcome:
    done = await tradewind("reap", "--fleet", str(ground.fleet_file), *arguments, environ={**QUICK, **environ})
    assert "Traceback" not in done.err, done.err
    return done


async def plant(ground: Ground) -> None:
    await ground.plant("p-live", "lives")
    await ground.plant("p-over", "over")
    await ground.plant("p-lost", "lost")
    await ground.plant("p-new", "new", age_s=5)
    await ground.plant("p-theirs", "lost", fleet="another")


async def test_without_yes_it_only_shows_what_would_go_and_the_command_for_it(ground: Ground) -> None:
    await plant(ground)
    async with a_master(LIVES, STOPPED) as master:
        done = await reap(ground, environ=master.environ)
    assert done.code == FOUND, done.err
    rows = {line.split()[1]: line for line in done.out.splitlines() if line.startswith("pool ")}
    assert set(rows) == {"p-over", "p-lost"}
    assert all(part in rows["p-lost"] for part in ("us-central1-a", CLUSTER, "50 min ago", "job lost"))
    assert "job over" in rows["p-over"]
    assert done.says("2 found", " USD ")
    assert done.says("Kept: ", "p-new", "job new")
    assert done.hint == ["tradewind", "reap", "--fleet", str(ground.fleet_file), "--yes"]
    assert len(await ground.pools()) == 5


async def test_with_yes_it_goes_and_afterwards_nothing_is_found(ground: Ground) -> None:
    await plant(ground)
    async with a_master(LIVES, STOPPED) as master:
        done = await reap(ground, "--yes", environ=master.environ)
        assert done.code == 0, done.err
        assert done.says("tradewind: ", "p-lost", CLUSTER)
        assert await ground.pools() == {"p-live", "p-new", "p-theirs"}
        again = await reap(ground, environ=master.environ)
    assert again.code == 0
    assert again.says(FLEET) and again.hint == []
    assert again.says("Kept: ", "p-new", "job new")


async def test_a_fleet_in_which_all_is_a_live_job_s_has_nothing_left_over(ground: Ground) -> None:
    await ground.plant("p-live", "lives")
    async with a_master(LIVES) as master:
        done = await reap(ground, environ=master.environ)
    assert (done.code, await ground.pools()) == (0, {"p-live"}), done.err
    assert done.says(FLEET) and not done.says("Kept: ")


async def test_json_has_every_finding_its_price_and_its_outcome(ground: Ground) -> None:
    await plant(ground)
    async with a_master(LIVES) as master:
        done = await reap(ground, "--json", "--yes", environ=master.environ)
    reported = json.loads(done.out)
    assert (done.code, reported["fleet"]) == (0, FLEET)
    lost = next(each for each in reported["orphans"] if each["name"] == "p-lost")
    assert (lost["kind"], lost["job"], lost["machines"], lost["outcome"]) == ("pool", "lost", 1, "removed")
    assert lost["micro_usd_per_hour"] > 0
    assert {each["name"]: each["outcome"] for each in reported["left_alone"]} == {"p-new": "left"}


async def test_what_may_be_a_job_s_whose_record_the_master_cannot_read_is_kept(ground: Ground) -> None:
    await ground.plant("p-broken", "broken")
    async with a_master(unread=["broken"]) as master:
        done = await reap(ground, "--yes", environ=master.environ)
    assert done.code == 0, done.err
    assert done.says("Kept: ", "p-broken", "job broken", "record")
    assert await ground.pools() == {"p-broken"}


async def test_what_a_job_that_was_submitted_meanwhile_answers_for_is_kept(ground: Ground) -> None:
    await ground.plant("p-lost", "lost")
    await ground.plant("p-over", "over")
    async with a_master(STOPPED, later=[a_view("lost")]) as master:
        done = await reap(ground, "--yes", "--json", environ=master.environ)
    outcomes = {each["name"]: each["outcome"] for each in json.loads(done.out)["orphans"]}
    assert (done.code, outcomes) == (0, {"p-lost": "left", "p-over": "removed"})
    assert done.says("tradewind: ", "p-lost", OWNED_AGAIN)
    assert await ground.pools() == {"p-lost"}


async def test_a_half_made_pool_is_waited_for_and_removed(tmp_path: Path) -> None:
    async with a_ground(tmp_path, stockout_s=4.0) as ground:
        await ground.stage.stock_out()
        assert isinstance(await ground.cloud.create_pool(CLUSTER, ground.a_plan("half", "lost")), Unfinished)
        async with a_master() as master:
            done = await reap(ground, "--yes", environ=master.environ | {"TRADEWIND_GKE_TURN_S": "0.2"})
        assert done.code == 0, done.err
        assert await ground.pools() == set()


async def test_a_cluster_that_the_file_does_not_name_goes_and_those_of_the_file_and_of_others_stay(
    ground: Ground,
) -> None:
    await ground.plant_cluster("forgotten")
    await ground.plant_cluster("theirs", fleet="another")
    async with a_master() as master:
        done = await reap(ground, "--yes", environ=master.environ)
    assert done.code == 0, done.err
    assert await ground.clusters() == {CLUSTER, "theirs"}


# The end of a fleet


async def test_clusters_of_the_file_go_only_when_asked_for_and_with_no_master_that_makes_them_again(
    ground: Ground,
) -> None:
    async with a_master() as master:
        refused = await reap(ground, "--clusters", "--yes", environ=master.environ)
    assert refused.code == 2
    assert "http://" in refused.error and "TRADEWIND_NATS_URL" in refused.hint
    assert await ground.clusters() == {CLUSTER}
    done = await reap(ground, "--clusters", "--yes", "--assume-no-jobs", environ=no_master())
    assert done.code == 0, done.err
    assert done.says(CLUSTER, FLEET)
    assert await ground.clusters() == set()


# Who cannot answer


async def test_if_nobody_knows_which_jobs_live_it_refuses_in_one_sentence_and_removes_nothing(ground: Ground) -> None:
    await ground.plant("p-lost", "lost")
    done = await reap(ground, "--yes", environ=no_master())
    assert done.code == EXIT_UNREACHABLE
    assert "--assume-no-jobs" in done.hint
    assert await ground.pools() == {"p-lost"}


async def test_a_cloud_that_is_away_is_told_and_nothing_is_removed(ground: Ground) -> None:
    await ground.plant("p-lost", "lost")
    async with a_master() as master, ground.stage.away():
        done = await reap(ground, "--yes", environ=master.environ)
    assert done.code == EXIT_UNREACHABLE
    assert done.error.startswith(SILENCE)
    await until(lambda: is_reached(ground.cloud), True)
    assert await ground.pools() == {"p-lost"}
