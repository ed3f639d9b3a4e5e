"""The environment of a trainer: exactly torchrun's contract, and variables with the prefix TRADEWIND_."""

import json
from collections.abc import Mapping
from string import Template
from typing import Final

from msgspec import structs

from agents.worker.state import WorkerIdentity
from messages.ids import Rank
from messages.jobs import Scalar
from messages.worlds import Assignment, Hyperparameters, Member
from tradewind.protocol.variables import GENERATION, HYPERPARAMETERS, INVITED, RANK, RESTART_COUNT

AN_INVITED: Final = {
    INVITED: "1",
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "GROUP_RANK": "0",
    "GROUP_WORLD_SIZE": "1",
    "ROLE_RANK": "0",
    "ROLE_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
    "TORCHELASTIC_USE_AGENT_STORE": "False",
}
"""Variables that replace those of a world for invited trainers: a world of one rank, at any free port.

`init_process_group` and DDP then need no other rank. The SDK gets its real place in a world from the agent.
"""
SIGNALS_TO_HANDLE = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
"""The value that torchrun's launcher sets by default."""


def rank_environment(
    assignment: Assignment, member: Member, local_rank: int, base_env: Mapping[str, str], error_file: str
) -> dict[str, str]:
    """Returns all variables of one trainer. `base_env` is the agent's own; the job's variables replace it."""
    base = {**base_env, **assignment.launch.env}
    rank = Rank(member.first_rank + local_rank)
    threads = {"OMP_NUM_THREADS": "1"} if member.ranks > 1 and "OMP_NUM_THREADS" not in base else {}
    return {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": SIGNALS_TO_HANDLE,
        **base,
        **threads,
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(assignment.world_size),
        "LOCAL_WORLD_SIZE": str(member.ranks),
        "GROUP_RANK": str(member.group_rank),
        "GROUP_WORLD_SIZE": str(len(assignment.members)),
        "ROLE_NAME": assignment.launch.env.get("ROLE_NAME", "default"),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(assignment.world_size),
        "MASTER_ADDR": assignment.store.host,
        "MASTER_PORT": str(assignment.store.port),
        "TORCHELASTIC_ERROR_FILE": error_file,
        "TORCHELASTIC_MAX_RESTARTS": str(assignment.max_restarts),
        "TORCHELASTIC_RESTART_COUNT": str(assignment.restart_count),
        "TORCHELASTIC_RUN_ID": assignment.job,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        GENERATION: str(assignment.generation),
        RANK: str(rank),
        RESTART_COUNT: str(assignment.restarts),
        HYPERPARAMETERS: json.dumps(_hyperparameters(assignment.hyperparameters, rank)),
    }


def enlarged(world: Assignment, joining_worker: WorkerIdentity) -> tuple[Assignment, Member]:
    """Returns the world with the slots of a joining worker behind its ranks, and that worker's place in it."""
    member = Member(
        worker=joining_worker.worker,
        cluster=joining_worker.cluster,
        region=joining_worker.region,
        zone=joining_worker.zone,
        address=joining_worker.address,
        group_rank=len(world.members),
        first_rank=Rank(world.world_size),
        ranks=joining_worker.slots,
    )
    members = (*world.members, member)
    return structs.replace(world, members=members, world_size=world.world_size + joining_worker.slots), member


def rank_arguments(arguments: tuple[str, ...], local_rank: int) -> list[str]:
    """Replaces `${local_rank}` by the local rank, as torchrun does."""
    return [Template(argument).safe_substitute(local_rank=str(local_rank)) for argument in arguments]


def _hyperparameters(sent: Hyperparameters, rank: Rank) -> dict[str, Scalar]:
    own: dict[str, Scalar | None] = {
        "global_batch": sent.global_batch,
        "share": sent.shares[rank] if rank < len(sent.shares) else None,
        "learning_rate": sent.learning_rate,
    }
    return {**sent.given, **{name: value for name, value in own.items() if value is not None}}
