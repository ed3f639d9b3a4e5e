"""Where the worlds of a trainer come from: from a worker-agent, from torchrun, or the process alone is its world.

Only with a worker-agent, or in a world of several ranks, are threads started and ports opened for that.
"""

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import torch
from torch._C._distributed_c10d import TCPStore

from tradewind.protocol.trainer import Assign, Store
from tradewind.sdk.agent.connection import AgentConnection
from tradewind.sdk.diagnostics import Instruments
from tradewind.sdk.groups.builder import Builder, Janitor, group_maker
from tradewind.sdk.groups.group import Group
from tradewind.sdk.trainer.shell import TrainerShell
from tradewind.sdk.trainer.state import Trainer
from tradewind.sdk.transfer.receiver import Receiver
from tradewind.sdk.transfer.serving import Serving

_MEET_TIMEOUT: Final = timedelta(minutes=5)
_served: list[TCPStore] = []


def make_trainer(
    state: Trainer,
    connection: AgentConnection | None,
    device: torch.device,
    receiver: Receiver,
    serving: Serving,
    instruments: Instruments,
) -> TrainerShell:
    """It asks for groups, and is told when they are built."""
    builder = Builder(
        group_maker(device),
        lambda generation, built: trainer.built(generation, built),
        lambda assign: receiver.listen(assign.generation, assign.address, assign.peers, assign.world_size),
        serving.prepare,
        lambda assign: instruments.faults("building", assign.rank, trainer.done),
    )
    # Without a worker-agent there is one world, whose group goes with the process.
    send, retire = (connection.send, Janitor()) if connection is not None else (_to_nobody, _with_the_process)
    trainer = TrainerShell(state, send, builder.start, retire)
    trainer.step_s = lambda: instruments.patience.step_s
    return trainer


def begin(trainer: TrainerShell, connection: AgentConnection | None) -> None:
    """Has the trainer enter its first world, and the others as they come."""
    if connection is not None:
        trainer.tell()
        connection.listen(trainer.obey)
    else:
        trainer.obey(given_world())


def given_world(environ: Mapping[str, str] = os.environ) -> Assign:
    """What torchrun says, or a world of one. It never changes: a lost peer is an error, and torchrun restarts ranks."""
    rank, size = int(environ.get("RANK", "0")), int(environ.get("WORLD_SIZE", "1"))
    host, port = environ.get("MASTER_ADDR", "127.0.0.1"), int(environ.get("MASTER_PORT", "0"))
    launcher_serves = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if size > 1 and rank == 0 and not launcher_serves:
        _served.append(TCPStore(host, port, is_master=True, wait_for_workers=False, timeout=_MEET_TIMEOUT))
    # torchrun's store lives on when it starts the ranks again.
    generation = 1 + int(environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    return Assign(generation, rank, size, "start", Store(host, port), address="")


def _to_nobody(_line: bytes) -> None:
    pass


def _with_the_process(_group: Group) -> None:
    pass
