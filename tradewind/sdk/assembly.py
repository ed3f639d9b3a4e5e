"""How the parts of a run are put together: those that a script decides, and those that every run has."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from torch._C._distributed_c10d import TCPStore
from torch.amp.grad_scaler import GradScaler

from tradewind.protocol import trainer as protocol
from tradewind.protocol.trainer import Assign, Store
from tradewind.sdk import diagnostics
from tradewind.sdk.agent.connection import Control
from tradewind.sdk.agent.reports import Reports
from tradewind.sdk.buckets import Gradients
from tradewind.sdk.certificate import Certificate
from tradewind.sdk.checkpoints import Saving
from tradewind.sdk.diagnostics import Faults
from tradewind.sdk.groups.builder import Builder, Janitor, group_maker
from tradewind.sdk.joining import Joining
from tradewind.sdk.loader import Loader
from tradewind.sdk.meter import StepSize
from tradewind.sdk.nonfinite import Nonfinite
from tradewind.sdk.samples import Order
from tradewind.sdk.starting import Starting
from tradewind.sdk.stopping import Ending, Parting
from tradewind.sdk.trainer.shell import TrainerShell
from tradewind.sdk.trainer.state import Trainer
from tradewind.sdk.training import Parts, Training
from tradewind.sdk.training_state.training_state import TrainingState
from tradewind.sdk.transfer.receiver import Receiver
from tradewind.sdk.transfer.serving import Serving
from tradewind.sdk.update import Applying

_MEET_TIMEOUT: Final = timedelta(minutes=5)
_served: list[TCPStore] = []


@dataclass(frozen=True, slots=True)
class Given:
    """By the script."""

    gradients: Gradients
    order: Order
    loader: Loader
    state: TrainingState
    applying: Applying
    scaler: GradScaler | None
    certificate: Certificate
    saving: Saving | None
    ending: Ending
    nonfinite: Nonfinite
    seed: int
    most_samples: int
    terms: str
    warning: str | None
    """About the model, for one rank to say when the run begins."""


def assemble(given: Given, control: Control | None) -> tuple[TrainerShell, Training]:
    """Without a line to a worker-agent the world never changes."""
    injected = Faults(os.environ.get(diagnostics.FAULTS, ""))
    traced = diagnostics.Trace(os.environ.get(diagnostics.TRACE))
    receiver = Receiver()
    serving = Serving(given.state)
    if given.saving is not None and control is not None:
        tell = control.tell
        given.saving.tell(lambda step, folder: tell(_checkpoint(step, folder)))
    member = _member(given, control, receiver, serving, injected)
    joining = Joining(
        member,
        given.gradients,
        given.order,
        given.state,
        given.applying,
        given.certificate,
        receiver,
        given.ending,
        injected,
        traced,
    )
    parts = Parts(
        member=member,
        gradients=given.gradients,
        loader=given.loader,
        order=given.order,
        state=given.state,
        applying=given.applying,
        scaler=given.scaler,
        certificate=given.certificate,
        saving=given.saving,
        starting=Starting(given.state, given.certificate, given.saving, given.warning),
        reports=Reports(
            control.tell if control is not None else None,
            StepSize(given.gradients.summed_bytes, given.order.batch),
        ),
        serving=serving,
        joining=joining,
        parting=Parting(member.is_halted),
        faults=injected,
        trace=traced,
        ending=given.ending,
        nonfinite=given.nonfinite,
        seed=given.seed,
        most_samples=given.most_samples,
        watched=control is not None,
    )
    return member, Training(parts)


def _member(
    given: Given, control: Control | None, receiver: Receiver, serving: Serving, injected: Faults
) -> TrainerShell:
    """It asks for groups, and hears of them when they are built."""
    builder = Builder(
        group_maker(given.gradients.device),
        lambda generation, built: member.built(generation, built),
        lambda assign: receiver.listen(assign.generation, assign.address, assign.peers, assign.world_size),
        serving.prepare,
        lambda assign: injected("building", assign.rank, member.done),
    )
    tell = control.tell if control is not None else _nobody
    state = Trainer(given.order.batch, given.ending.planned, given.terms)
    member = TrainerShell(state, tell, builder.start, Janitor())
    return member


def _nobody(_line: bytes) -> None:
    pass


def given_world(environ: Mapping[str, str] = os.environ) -> Assign:
    """It stays as it is: a lost peer is an error, and whoever started the ranks starts them again."""
    rank, size = int(environ.get("RANK", "0")), int(environ.get("WORLD_SIZE", "1"))
    host, port = environ.get("MASTER_ADDR", "127.0.0.1"), int(environ.get("MASTER_PORT", "0"))
    launcher_serves = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if size > 1 and rank == 0 and not launcher_serves:
        _served.append(TCPStore(host, port, is_master=True, wait_for_workers=False, timeout=_MEET_TIMEOUT))
    # torchrun's store lives on when it starts the ranks again.
    generation = 1 + int(environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    return Assign(generation, rank, size, "start", Store(host, port), address="")


def _checkpoint(step: int, folder: Path) -> bytes:
    return protocol.encode_message(protocol.Checkpoint(step, str(folder.absolute()), time.time()))
