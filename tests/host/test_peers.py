"""Real process groups of forked trainers under torchrun's contract: another process has the store."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.host.agent import Agent

TRAINS_FOR_EVER = """
    import torch, torch.distributed as dist
    dist.init_process_group()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters())
    step = 0
    while True:
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        step += 1
        if step == 5: print("trained with", dist.get_world_size())
"""


@pytest.fixture
def store_port() -> Iterator[int]:
    from torch._C._distributed_c10d import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield store.port
    del store


def a_world(size: int, port: int) -> dict[str, str]:
    return {
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_RUN_ID": "test",
        "RES_OPTIONS": "timeout:1 attempts:1",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def test_forked_ranks_meet_and_a_killed_peer_is_told_by_the_survivor(host: Agent, store_port: int) -> None:
    generation = host.fork(
        host.script(TRAINS_FOR_EVER),
        ranks=2,
        env=lambda rank: a_world(2, store_port) | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
    )
    for rank in range(2):
        host.wait_for_line(generation, "trained with 2", rank)
    os.kill(host.wait_for("forked", generation, 1)["pid"], signal.SIGKILL)
    killed, survivor = host.finish(generation, 1), host.finish(generation, 0)
    assert (killed["signal"], killed["peer_lost"]) == ("SIGKILL", False)
    assert (survivor["code"], survivor["peer_lost"]) == (1, True), survivor["tail"]
    assert "gloo" in survivor["tail"][-1]


def test_a_rank_that_finds_no_store_says_that_it_lost_it(host: Agent, unused_port: int) -> None:
    script = host.script("""
        import datetime, torch.distributed as dist
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=1))
    """)
    world = a_world(2, unused_port) | {"RANK": "0", "LOCAL_RANK": "0"}
    exited = host.finish(host.fork(script, env=lambda _: world))
    assert (exited["code"], exited["peer_lost"]) == (1, True), exited["tail"]


def test_a_rank_that_fails_by_itself_does_not_blame_its_peers(host: Agent, store_port: int) -> None:
    script = host.script("""
        import torch.distributed as dist
        dist.init_process_group()
        raise ValueError("no_column")
    """)
    world = a_world(1, store_port) | {"RANK": "0", "LOCAL_RANK": "0"}
    exited = host.finish(host.fork(script, env=lambda _: world))
    assert (exited["code"], exited["peer_lost"]) == (1, False)
    assert exited["tail"][-1].endswith("ValueError: no_column")
