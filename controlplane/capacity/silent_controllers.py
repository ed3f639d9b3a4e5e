"""The watch over silent controllers: it reads their pods until they are heard. Rules: `silence_policy`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import assert_never

from controlplane.capacity.interface import LastHeard
from controlplane.capacity.silence_policy import Announce, Block, PodSeen, Silence, SilenceEffect, decide
from controlplane.capacity.start_policy import PullHint
from messages.clusters import StartFailure
from messages.events import Event
from messages.ids import ClusterName
from runtime.backoff import pauses
from runtime.clock import Clock

PAUSE_FIRST_S = 5.0
PAUSE_MOST_S = 30.0

FailureOf = Callable[[ClusterName], Awaitable[StartFailure | None]]
"""Returns why the controller's pod cannot start, without an age; None if nothing is known."""


class SilentControllers:
    def __init__(
        self,
        failure_of: FailureOf,
        block: Callable[[ClusterName, str, str], None],
        announce: Callable[[Event], None],
        heard_s: LastHeard,
        pull_hint: PullHint,
        clock: Clock,
    ) -> None:
        """The arguments of `block`: the cluster, the reason, and what a person can do."""
        self._failure_of = failure_of
        self._block = block
        self._announce = announce
        self._heard_s = heard_s
        self._pull_hint = pull_hint
        self._clock = clock

    async def wait_while_failing(self, cluster: ClusterName) -> None:
        """Wait until the controller is heard or no failure of it is known."""
        silence = Silence(cluster, self._clock.monotonic_s())
        for pause_s in pauses(PAUSE_FIRST_S, PAUSE_MOST_S):
            failure = await self._failure_of(cluster)
            seen = PodSeen(self._clock.monotonic_s(), failure, self._heard_s(cluster))
            decision = decide(silence, seen, self._pull_hint)
            silence = decision.state
            if silence.is_over:
                return
            for effect in decision.effects:
                self._perform(effect)
            await asyncio.sleep(pause_s)

    def _perform(self, effect: SilenceEffect) -> None:
        match effect:
            case Block(cluster, detail, hint):
                self._block(cluster, detail, hint)
            case Announce(event):
                self._announce(event)
            case _:
                assert_never(effect)
