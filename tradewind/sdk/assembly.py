"""Creates and connects the parts of a run from the script's arguments."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from tradewind.protocol import trainer as protocol
from tradewind.sdk import checks
from tradewind.sdk.agent.reports import Reports
from tradewind.sdk.certificate import Audit, Certificate
from tradewind.sdk.checkpoints import Saving
from tradewind.sdk.data.batches import Batches
from tradewind.sdk.data.loader import Loader
from tradewind.sdk.data.order import Order
from tradewind.sdk.diagnostics import Instruments
from tradewind.sdk.exchange import Exchange
from tradewind.sdk.joining import Joining
from tradewind.sdk.learner import Learner, Script
from tradewind.sdk.nonfinite import OnNonfinite
from tradewind.sdk.starting import Starting
from tradewind.sdk.stopping import Ending
from tradewind.sdk.timing import StepSize
from tradewind.sdk.trainer.state import Trainer
from tradewind.sdk.training import Entrances, Records, Training
from tradewind.sdk.worlds import Worlds


@dataclass(frozen=True, slots=True)
class Data:
    """The script's arguments about samples."""

    dataset: Any
    batch: int
    seed: int
    shuffle: bool
    max_share: int | None
    collate: Callable[[list[Any]], Any] | None
    prefetch: bool


@dataclass(frozen=True, slots=True)
class Course:
    """The script's arguments about length, errors and checkpoints of the run."""

    steps: int
    on_nonfinite: OnNonfinite
    checkpoints: str | Path | None
    checkpoint_every: int


class Parts:
    """The parts of a run."""

    def __init__(self, script: Script, data: Data, course: Course) -> None:
        if course.steps < 1:
            raise ValueError(f"steps must be at least 1, not {course.steps}")
        if data.max_share is not None and data.max_share < 1:
            raise ValueError(f"max_share must be at least 1, not {data.max_share}")
        self.certificate = Certificate()
        self.ending = Ending(course.steps)
        learner = Learner(script, self.certificate, course.on_nonfinite, data.seed)
        order = Order(_length(data.dataset), data.batch, data.seed, data.shuffle)
        terms = checks.terms_of(learner.state, order, course.steps, **learner.terms)
        checks.require_same_terms(terms, os.environ)
        instruments = Instruments.from_environment(os.environ)
        self.loader = Loader(data.dataset, order, data.collate, prefetch=data.prefetch)
        self.saving = _saving(course, learner)
        trainer = Trainer(order.batch, course.steps, terms)
        self.worlds = Worlds(trainer, learner.state, learner.buckets.device, instruments)
        self.trainer = self.worlds.trainer
        audit = Audit(self.certificate, order.indices)
        self.exchange = Exchange(
            self.trainer, learner.buckets, learner.applier, audit, self.worlds.serving, self.ending, instruments
        )
        self.batches = Batches(
            self.loader, learner.buckets, learner.scaler, data.seed, data.max_share or data.batch, instruments
        )
        entrances = Entrances(
            Starting(learner.state, self.certificate, self.saving, learner.warning),
            Joining(self.trainer, self.exchange, learner.state, self.worlds.receiver, instruments),
            watched=self.worlds.send is not None,
        )
        size = StepSize(learner.buckets.gradient_bytes, order.batch)
        records = Records(_reports(self.worlds.send, self.saving, size), self.saving, self.certificate)
        self.training = Training(
            self.trainer, self.exchange, self.batches, entrances, records, self.ending, instruments
        )

    def close(self) -> None:
        """Ends threads and connections, which otherwise end with the process."""
        self.loader.close()
        self.worlds.close()
        if self.saving is not None:
            self.saving.close()


def _saving(course: Course, learner: Learner) -> Saving | None:
    if course.checkpoints is None:
        return None
    return Saving(course.checkpoints, course.checkpoint_every, learner.state.payload)


def _reports(send: Callable[[bytes], None] | None, saving: Saving | None, size: StepSize) -> Reports:
    if send is not None and saving is not None:
        saving.tell(lambda step, folder: send(_checkpoint(step, folder)))
    return Reports(send, size)


def _checkpoint(step: int, folder: Path) -> bytes:
    return protocol.encode_message(protocol.Checkpoint(step, str(folder.absolute()), time.time()))


def _length(dataset: Any) -> int:
    if isinstance(dataset, DataLoader):
        raise TypeError("a run reads samples itself: give it the dataset of the DataLoader (and collate= if necessary)")
    try:
        return len(dataset)
    except TypeError:
        raise TypeError(
            f"{type(dataset).__name__} has no len(): a run needs a map-style dataset, with len() and [index]"
        ) from None
