"""The first world of a run: all ranks agree on one state before the first step.

It is the newest checkpoint that any rank can read, otherwise the state of rank 0. No rank trains yet, so one rank
broadcasts it.
"""

from pathlib import Path

import torch

from tradewind.sdk.certificate import Certificate
from tradewind.sdk.checkpoints import Saving
from tradewind.sdk.checks import about_learning_rate
from tradewind.sdk.diagnostics import say
from tradewind.sdk.exchange import Collectives
from tradewind.sdk.trainer.state import World
from tradewind.sdk.training_state.tensor_bytes import Staging
from tradewind.sdk.training_state.training_state import TrainingState


class Starting:
    def __init__(
        self, state: TrainingState, certificate: Certificate, saving: Saving | None, warning: str | None = None
    ) -> None:
        """`warning` is about the script; one rank prints it."""
        self._state = state
        self._warning = warning
        self._rates = state.rates()
        self._certificate = certificate
        self._saving = saving
        self._is_source = False

    def agree(self, collectives: Collectives, world: World) -> int | None:
        """Returns the first step; None if the world broke."""
        newest = torch.zeros(world.size, dtype=torch.int64)
        newest[world.rank] = self._restore()
        if not collectives.all_reduce_max(newest):
            return None
        source = int(newest.argmax())
        self._is_source = world.rank == source
        if world.size > 1 and not self._send_to_all(collectives, source):
            return None
        return int(newest[source])

    def tell(self, first: int, steps: int) -> None:
        """Prints where the run starts, on the first rank that has the checkpoint: it knows the folder."""
        if self._saving is not None and self._is_source and first > 0:
            say(resuming(first, steps, self._saving.folder))
            remark = about_learning_rate(self._rates, self._state.rates())
            if remark is not None and first < steps:
                say(remark)
        if self._warning is not None and self._is_source:
            say(self._warning)

    def _restore(self) -> int:
        self._certificate.take_over(Certificate())  # a broken start may have filled it
        restored = self._saving.restore(self._state.restore) if self._saving is not None else None
        if restored is None:
            return 0
        step, lives = restored
        self._certificate.resumed(step, lives)
        return step

    def _send_to_all(self, collectives: Collectives, source: int) -> bool:
        is_source = collectives.rank == source
        parts = self._whole() if is_source else (bytearray(), bytearray())
        sizes = torch.tensor([len(part) for part in parts], dtype=torch.int64)
        if not collectives.broadcast(sizes, source):
            return False
        if not is_source:
            parts = bytearray(int(sizes[0])), bytearray(int(sizes[1]))
        if not all(collectives.broadcast(torch.frombuffer(part, dtype=torch.uint8), source) for part in parts):
            return False
        if not is_source:
            self._state.load(*parts)
        return True

    def _whole(self) -> tuple[bytearray, bytearray]:
        staging = Staging(self._state.nbytes())
        return bytearray(self._state.header()), bytearray(self._state.copy_shard(0, 1, staging))


def resuming(first: int, steps: int, folder: Path) -> str:
    if first < steps:
        return f"resuming at step {first} (checkpoint in {folder})"
    has = f"{steps} step" + ("" if steps == 1 else "s")
    return f"the checkpoint in {folder} is at step {first} and the run has {has}: nothing to do"
