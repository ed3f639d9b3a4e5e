"""The source of a trainer's worlds: a worker-agent, torchrun, or the process itself as a world of one.

A process alone starts no thread and opens no port for its world.
"""

import atexit
import os
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

import torch
from torch._C._distributed_c10d import TCPStore

from tradewind.protocol.trainer import Assign, Store
from tradewind.sdk.agent.connection import connect
from tradewind.sdk.diagnostics import Instruments
from tradewind.sdk.groups.builder import Builder, Janitor, group_maker
from tradewind.sdk.groups.group import Group
from tradewind.sdk.trainer.shell import TrainerShell
from tradewind.sdk.trainer.state import Trainer
from tradewind.sdk.training_state.training_state import TrainingState
from tradewind.sdk.transfer.receiver import Receiver
from tradewind.sdk.transfer.serving import Serving

_MEET_TIMEOUT: Final = timedelta(minutes=5)
_LAST_WAIT_S: Final = 2.0
_served: list[TCPStore] = []


class Worlds:
    """A trainer and what it needs to enter worlds: the agent, process groups, and transfers of the state."""

    def __init__(self, trainer: Trainer, state: TrainingState, device: torch.device, instruments: Instruments) -> None:
        self._connection = connect()
        self.receiver = Receiver()
        self.serving = Serving(state)
        builder = Builder(
            group_maker(device),
            lambda generation, built: self.trainer.built(generation, built),
            self._listen,
            self.serving.prepare,
            lambda assign: instruments.faults("building", assign.rank, self.trainer.done),
        )
        # Without an agent there is one world; its group ends with the process.
        retire = Janitor() if self._connection is not None else _with_the_process
        self.trainer = TrainerShell(trainer, self.send or _discard, builder.start, retire)
        self.trainer.step_s = lambda: instruments.patience.step_s
        atexit.register(self._drop_groups)

    @property
    def send(self) -> Callable[[bytes], None] | None:
        """Sends a line to the worker-agent. None without an agent: then the world never changes."""
        return self._connection.send if self._connection is not None else None

    def begin(self) -> None:
        """Gives the trainer its first world and listens for later ones."""
        if self._connection is not None:
            self.trainer.report()
            self._connection.listen(self.trainer.obey)
        else:
            self.trainer.obey(given_world())

    def close(self) -> None:
        self.receiver.close()
        self.serving.close()

    def _drop_groups(self) -> None:
        """Ends the threads of gloo. One that releases a tensor while the interpreter ends would abort the process.

        A trainer that leaves a world has no such thread, and the first step of the others should not wait for this.
        """
        groups = self.trainer.take_groups() if self.trainer.read().certificate is not None else []
        if groups:
            dropping = threading.Thread(target=groups.clear, name="tradewind-last-groups", daemon=True)
            dropping.start()
            dropping.join(_LAST_WAIT_S)

    def _listen(self, assign: Assign) -> tuple[int, str]:
        return self.receiver.listen(assign.generation, assign.address, assign.peers, assign.world_size)


def given_world(environ: Mapping[str, str] = os.environ) -> Assign:
    """The world that torchrun sets, or a world of one. It never changes: torchrun restarts the ranks after a loss."""
    rank, size = int(environ.get("RANK", "0")), int(environ.get("WORLD_SIZE", "1"))
    host, port = environ.get("MASTER_ADDR", "127.0.0.1"), int(environ.get("MASTER_PORT", "0"))
    launcher_serves = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if size > 1 and rank == 0 and not launcher_serves:
        _served.append(TCPStore(host, port, is_master=True, wait_for_workers=False, timeout=_MEET_TIMEOUT))
    # torchrun keeps its store when it restarts the ranks.
    generation = 1 + int(environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    return Assign(generation, rank, size, "start", Store(host, port), address="")


def _discard(_line: bytes) -> None:
    pass


def _with_the_process(_group: Group) -> None:
    pass
