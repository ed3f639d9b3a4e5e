"""The trainers' environment: the same that torchrun gives, key by key, and nothing else but names of our own."""

import asyncio
import json
import os
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from agents.worker.environment import AN_INVITED, enlarged, rank_arguments, rank_environment
from messages.ids import Rank
from messages.jobs import Launch
from messages.workers import WorkerPhase
from messages.worlds import Hyperparameters
from runtime import children
from runtime.nats_server import NatsServer
from tests.worker.builders import OTHER, OWN, a_member, an_assignment, an_identity
from tests.worker.fakes import NO_STORE, SECONDS, FakeMaster, a_script, an_agent

PROBE = """
import json, os, sys
seen = {"env": dict(os.environ), "argv": sys.argv[1:], "cwd": os.getcwd(), "name": __name__}
with open(f"{sys.argv[1]}/{os.environ['RANK']}.json", "w") as file:
    json.dump(seen, file)
"""
DIFFERS = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID"}
"""Variables whose values must differ from torchrun's: the address of the store, a path, and the name of the run."""


class Seen(Struct):
    env: dict[str, str]
    argv: list[str]
    cwd: str
    name: str


def _seen(folder: Path) -> list[Seen]:
    return [msgspec.json.decode((folder / f"{rank}.json").read_bytes(), type=Seen) for rank in range(2)]


def test_the_role_is_the_one_that_the_job_names() -> None:
    member, agents = a_member(OWN, 0), {"ROLE_NAME": "of the agent"}
    launch = Launch(script="train.py", env={"ROLE_NAME": "eval"})
    assert rank_environment(an_assignment(1, member), member, 0, agents, "")["ROLE_NAME"] == "default"
    assert rank_environment(an_assignment(1, member, launch=launch), member, 0, agents, "")["ROLE_NAME"] == "eval"


async def test_the_same_script_sees_the_same_environment_under_torchrun_and_under_us(
    nats_server: NatsServer, master: FakeMaster, tmp_path: Path
) -> None:
    script, theirs, ours = tmp_path / "job" / "probe.py", tmp_path / "theirs", tmp_path / "ours"
    launch = a_script(tmp_path / "job", PROBE, "probe.py")
    theirs.mkdir()
    ours.mkdir()
    arguments = ("--flag", "local rank ${local_rank}")

    options = ("--standalone", "--nproc-per-node", "2")
    torchrun = await children.start(
        (sys.executable, "-m", "torch.distributed.run", *options, str(script), str(theirs), *arguments),
        env=os.environ,
        cwd=script.parent,
        dies_with_us=True,
    )
    async with an_agent(nats_server.url, tmp_path / "run", slots=2):
        [worker] = await master.workers()
        ours_to_run = Launch(script=str(script), workdir=launch.workdir, args=(str(ours), *arguments))
        master.assigns(1, worker, launch=ours_to_run, store=NO_STORE)
        status = await master.until(worker, WorkerPhase.ENDED, 1)
        assert all(ended.clean for ended in status.exits), status.exits
    async with asyncio.timeout(SECONDS):
        assert await torchrun.wait() == 0

    for seen_there, seen_here in zip(_seen(theirs), _seen(ours), strict=True):
        there, here = seen_there.env, seen_here.env
        assert {name for name in here if name not in there and not name.startswith("TRADEWIND_")} == set()
        assert set(there) - set(here) == set()
        assert {name for name in there if there[name] != here[name]} - DIFFERS == set()
        assert Path(here["TORCHELASTIC_ERROR_FILE"]).parent.name == here["RANK"]
        assert here["TRADEWIND_TRAINER_SOCKET"] == str(tmp_path / "run" / "w1" / "trainers.sock")
        assert seen_here.argv[1:] == seen_there.argv[1:] == ["--flag", f"local rank {here['LOCAL_RANK']}"]
        assert (seen_here.cwd, seen_here.name) == (seen_there.cwd, seen_there.name)


def test_ranks_of_a_second_worker_continue_where_the_first_ended() -> None:
    first, second = a_member(OTHER, 0, 2), a_member(OWN, 2, 2, group_rank=1)
    env = rank_environment(an_assignment(3, first, second), second, 1, {}, "/errors/3.json")
    contract = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
    assert [env[name] for name in contract] == ["3", "1", "4", "2", "1", "2"]
    assert (env["ROLE_RANK"], env["ROLE_WORLD_SIZE"]) == ("3", "4")
    assert env["TRADEWIND_GENERATION"] == "3"


def test_what_the_job_gives_goes_over_the_agents_own_and_the_contract_over_both() -> None:
    launch = Launch(script="train.py", env={"A": "job", "RANK": "9", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"})
    member = a_member(OWN, 0)
    base = {"A": "agent", "B": "agent", "WORLD_SIZE": "7"}
    env = rank_environment(an_assignment(1, member, launch=launch), member, 0, base, "")
    assert (env["A"], env["B"], env["RANK"], env["WORLD_SIZE"]) == ("job", "agent", "0", "1")
    assert env["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3"


def test_threads_are_limited_only_for_several_ranks_and_only_if_nobody_chose() -> None:
    one, two = a_member(OWN, 0, 1), a_member(OWN, 0, 2)
    assert "OMP_NUM_THREADS" not in rank_environment(an_assignment(1, one), one, 0, {}, "")
    assert rank_environment(an_assignment(1, two), two, 0, {}, "")["OMP_NUM_THREADS"] == "1"
    assert rank_environment(an_assignment(1, two), two, 0, {"OMP_NUM_THREADS": "4"}, "")["OMP_NUM_THREADS"] == "4"


def test_each_rank_gets_its_share_and_whatever_else_was_sent() -> None:
    sent = Hyperparameters(global_batch=5, shares=(3, 2), learning_rate=0.1, given={"dropout": 0.2})
    member = a_member(OWN, 0, 2)
    env = rank_environment(an_assignment(1, member, hyperparameters=sent), member, 1, dict(os.environ), "")
    written = json.loads(env["TRADEWIND_HYPERPARAMETERS"])
    assert written == {"dropout": 0.2, "global_batch": 5, "share": 2, "learning_rate": 0.1}
    assert (
        json.loads(rank_environment(an_assignment(1, member), member, Rank(0), {}, "")["TRADEWIND_HYPERPARAMETERS"])
        == {}
    )


def test_the_local_rank_can_be_part_of_an_argument() -> None:
    assert rank_arguments(("--device=cuda:${local_rank}", "$other"), 3) == ["--device=cuda:3", "$other"]


def test_those_who_are_invited_are_a_world_of_one_that_needs_nobody() -> None:
    world, place = enlarged(an_assignment(4, a_member(OTHER, 0, 3)), an_identity(slots=2))
    env = {**rank_environment(world, place, 1, {}, ""), **AN_INVITED}
    contract = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE")
    assert [env[name] for name in contract] == ["0", "1", "1", "0", "1", "1"]
    assert (env["MASTER_ADDR"], env["TORCHELASTIC_USE_AGENT_STORE"]) == ("127.0.0.1", "False")
    assert env["LOCAL_RANK"] == "1", "its device is its own all the same"
    assert (env["TRADEWIND_GENERATION"], env["TRADEWIND_RANK"]) == ("4", "4"), "how its agent knows it"
