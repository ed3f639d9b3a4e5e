"""`tradewind reap` as people start it, against the simulator: what it shows, what it removes, what it refuses."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controlplane.clouds.outcomes import Unfinished
from tests.cli.builders import no_master
from tests.cli.command import Outcome, tradewind
from tests.cli.fake_master import a_view
from tests.clouds.contract import is_reached, until
from tests.reaper.ground import CLUSTER, FLEET, Ground, a_ground, a_master

FOUND = 3
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
    assert all(part in rows["p-lost"] for part in ("us-central1-a", CLUSTER, "50 min ago", "no job lost is known"))
    assert "job over has ended" in rows["p-over"]
    assert "2 found; their machines cost" in done.out
    assert "Left alone: pool p-new of job new: it was asked for" in done.out
    assert done.out.splitlines()[-1] == f"Next: tradewind reap --fleet {ground.fleet_file} --yes"
    assert len(await ground.pools()) == 5


async def test_with_yes_it_goes_and_afterwards_nothing_is_found(ground: Ground) -> None:
    await plant(ground)
    async with a_master(LIVES, STOPPED) as master:
        done = await reap(ground, "--yes", environ=master.environ)
        assert done.code == 0, done.err
        assert "tradewind: pool p-lost of a-cluster is gone" in done.err
        assert await ground.pools() == {"p-live", "p-new", "p-theirs"}
        again = await reap(ground, environ=master.environ)
    assert again.code == 0
    assert f"Fleet {FLEET} has nothing that can be removed now." in again.out
    assert "Left alone: pool p-new of job new" in again.out


async def test_a_fleet_in_which_all_is_a_live_job_s_has_nothing_left_over(ground: Ground) -> None:
    await ground.plant("p-live", "lives")
    async with a_master(LIVES) as master:
        done = await reap(ground, environ=master.environ)
    assert (done.code, await ground.pools()) == (0, {"p-live"}), done.err
    assert f"Fleet {FLEET} has nothing left over: every resource belongs to a live job." in done.out


async def test_json_has_every_finding_its_price_and_its_outcome(ground: Ground) -> None:
    await plant(ground)
    async with a_master(LIVES) as master:
        done = await reap(ground, "--json", "--yes", environ=master.environ)
    told = json.loads(done.out)
    assert (done.code, told["fleet"]) == (0, FLEET)
    lost = next(each for each in told["orphans"] if each["name"] == "p-lost")
    assert (lost["kind"], lost["job"], lost["machines"], lost["outcome"]) == ("pool", "lost", 1, "removed")
    assert lost["micro_usd_per_hour"] > 0
    assert {each["name"]: each["outcome"] for each in told["left_alone"]} == {"p-new": "left"}


async def test_what_may_be_a_job_s_whose_record_the_master_cannot_read_is_kept(ground: Ground) -> None:
    await ground.plant("p-broken", "broken")
    async with a_master(unread=["broken"]) as master:
        done = await reap(ground, "--yes", environ=master.environ)
    assert done.code == 0, done.err
    assert "Left alone: pool p-broken of job broken: its job's record cannot be read." in done.out
    assert await ground.pools() == {"p-broken"}


async def test_what_a_job_that_was_submitted_meanwhile_answers_for_is_kept(ground: Ground) -> None:
    await ground.plant("p-lost", "lost")
    await ground.plant("p-over", "over")
    async with a_master(STOPPED, later=[a_view("lost")]) as master:
        done = await reap(ground, "--yes", "--json", environ=master.environ)
    outcomes = {each["name"]: each["outcome"] for each in json.loads(done.out)["orphans"]}
    assert (done.code, outcomes) == (0, {"p-lost": "left", "p-over": "removed"})
    assert "tradewind: pool p-lost of a-cluster is kept: somebody answers for it by now" in done.err
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
    assert "would make the clusters again" in refused.err
    assert await ground.clusters() == {CLUSTER}
    done = await reap(ground, "--clusters", "--yes", "--assume-no-jobs", environ=no_master())
    assert done.code == 0, done.err
    assert "all clusters of fleet a-fleet are to go" in done.out
    assert await ground.clusters() == set()


# Who cannot answer


async def test_if_nobody_knows_which_jobs_live_it_refuses_in_one_sentence_and_removes_nothing(ground: Ground) -> None:
    await ground.plant("p-lost", "lost")
    done = await reap(ground, "--yes", environ=no_master())
    assert done.code == 2
    assert done.err.startswith("Error: Nobody tells which jobs live: The master at")
    assert "--assume-no-jobs" in done.err
    assert await ground.pools() == {"p-lost"}


async def test_a_cloud_that_is_away_is_told_and_nothing_is_removed(ground: Ground) -> None:
    await ground.plant("p-lost", "lost")
    async with a_master() as master, ground.stage.away():
        done = await reap(ground, "--yes", environ=master.environ)
    assert done.code == 2
    assert "The cloud does not tell what there is" in done.err
    await until(lambda: is_reached(ground.cloud), True)
    assert await ground.pools() == {"p-lost"}
