"""A survivor's part in a join: it sends its share of the state as it was at the switch, from background threads.

The state does not change between the switch and the next step of the optimizer; only the copy has to be made by then.
"""

import atexit
from typing import Final

from tradewind.sdk.groups.group import Joiner
from tradewind.sdk.trainer.state import World
from tradewind.sdk.training_state.training_state import TrainingState
from tradewind.sdk.transfer.sender import Streamer, StreamJob

_COPY_AT_MOST_S: Final = 10.0
_REMEMBERED: Final = 64


class Serving:
    def __init__(self, state: TrainingState) -> None:
        self._state = state
        self._fingerprints: dict[int, int] = {}
        self._streamer = Streamer(self._fingerprints)
        self._copying: list[StreamJob] = []
        self._serves = False
        atexit.register(self.close)

    def prepare(self, joiner: Joiner, senders: int) -> None:
        """Ahead of the switch, in the builder's thread."""
        self._streamer.prepare(joiner.address, joiner.token, self._state.nbytes(), max(1, senders), joiner.source)

    def begin(self, world: World, joiners: tuple[Joiner, ...], done: int) -> None:
        """At the switch, on the training thread: `done` is the step that the state is at."""
        waiting = [joiner for joiner in joiners if not world.active[joiner.rank]]
        if not waiting:
            return
        senders = [rank for rank, active in enumerate(world.active) if active]
        shard = senders.index(world.rank)
        header = self._state.header() if shard == 0 else None
        self._serves = True
        self.applied(done)
        for joiner in waiting:
            job = StreamJob(
                joiner.address,
                joiner.token,
                world.generation,
                done,
                shard,
                len(senders),
                self._state,
                header,
                joiner.source,
            )
            self._copying.append(job)
            self._streamer.offer(job)

    def wait_until_copied(self) -> None:
        """Before the state changes."""
        for job in self._copying:
            if not job.copied.wait(_COPY_AT_MOST_S):
                job.abandon()
        self._copying.clear()

    def applied(self, done: int) -> None:
        """What a joiner that is level at this step must have."""
        if self._serves:
            self._fingerprints[done] = self._state.fingerprint()
            self._fingerprints.pop(done - _REMEMBERED, None)

    def close(self) -> None:
        self._streamer.close()

    def forget(self) -> None:
        """Nobody is joining any more."""
        if self._serves:
            self._serves = False
            self._fingerprints.clear()
