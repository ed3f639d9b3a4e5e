"""The environment of a trainer: torchrun's contract, exactly, and what is ours under names of our own (TRADEWIND_…)."""

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
"""Goes over the environment of whoever is forked ahead of any world: a world of one, at any port that is free.

`init_process_group` and DDP then need nobody: the others have met long ago. The SDK has its place from elsewhere.
"""
SIGNALS_TO_HANDLE = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
"""What torchrun's launcher leaves in the environment unless told otherwise."""


def rank_environment(
    assignment: Assignment, member: Member, local_rank: int, base_env: Mapping[str, str], error_file: str
) -> dict[str, str]:
    """All variables of one trainer. `base_env` is the agent's own; what the job gives goes over it."""
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


def enlarged(world: Assignment, newcomer: WorkerIdentity) -> tuple[Assignment, Member]:
    """A world with all slots of a newcomer behind the ranks it has: the place under which its trainers are forked."""
    member = Member(
        worker=newcomer.worker,
        cluster=newcomer.cluster,
        region=newcomer.region,
        zone=newcomer.zone,
        address=newcomer.address,
        group_rank=len(world.members),
        first_rank=Rank(world.world_size),
        ranks=newcomer.slots,
    )
    members = (*world.members, member)
    return structs.replace(world, members=members, world_size=world.world_size + newcomer.slots), member


def rank_arguments(arguments: tuple[str, ...], local_rank: int) -> list[str]:
    """As torchrun does: `${local_rank}` stands for the local rank."""
    return [Template(argument).safe_substitute(local_rank=str(local_rank)) for argument in arguments]


def _hyperparameters(sent: Hyperparameters, rank: Rank) -> dict[str, Scalar]:
    own: dict[str, Scalar | None] = {
        "global_batch": sent.global_batch,
        "share": sent.shares[rank] if rank < len(sent.shares) else None,
        "learning_rate": sent.learning_rate,
    }
    return {**sent.given, **{name: value for name, value in own.items() if value is not None}}
