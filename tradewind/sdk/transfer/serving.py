"""Serving: a rank with the state sends its shard, as it was at the switch, to joining ranks in the background.

The state does not change between the switch and the next step of the optimizer; only the copy must be complete by then.
"""

import atexit
from typing import Final

from tradewind.sdk.groups.group import JoiningRank
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

    def prepare(self, joining: JoiningRank, senders: int) -> None:
        """Connects to a joining rank before the switch. The builder's thread calls it."""
        self._streamer.prepare(joining.destination, self._state.nbytes(), max(1, senders))

    def begin(self, world: World, joining: tuple[JoiningRank, ...], done: int) -> None:
        """Sends the state at step `done`. The training thread calls it at the switch."""
        waiting = [each.destination for each in joining if not world.active[each.rank]]
        if not waiting:
            return
        senders = [rank for rank, active in enumerate(world.active) if active]
        shard = senders.index(world.rank)
        header = self._state.header() if shard == 0 else None
        self._serves = True
        self.applied(done)
        for destination in waiting:
            job = StreamJob(destination, world.generation, done, shard, len(senders), self._state, header)
            self._copying.append(job)
            self._streamer.offer(job)

    def wait_until_copied(self) -> None:
        """Waits until the shards are copied, so that the state may change; abandons a copy that takes too long."""
        for job in self._copying:
            if not job.copied.wait(_COPY_AT_MOST_S):
                job.abandon()
        self._copying.clear()

    def applied(self, done: int) -> None:
        """Stores the fingerprint that a joining rank must have at this step."""
        if self._serves:
            self._fingerprints[done] = self._state.fingerprint()
            self._fingerprints.pop(done - _REMEMBERED, None)

    def close(self) -> None:
        self._streamer.close()

    def forget(self) -> None:
        """Drops the fingerprints, because no rank is joining any more."""
        if self._serves:
            self._serves = False
            self._fingerprints.clear()
