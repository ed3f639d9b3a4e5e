"""Why the controller of a cluster is silent: nodes may be unable to pull its image.

Without a controller no worker starts, so nothing should be bought for the cluster either.
"""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import structs

from controlplane.capacity.starts import PullHint, counts, explain
from controlplane.clouds.outcomes import with_hint
from messages.clusters import StartFailure
from messages.events import FLEET, Event
from messages.ids import ClusterName
from runtime.backoff import pauses
from runtime.clock import Clock

PAUSE_FIRST_S = 5.0
PAUSE_MOST_S = 30.0
LOOKS = 3
"""Looks in a row that must find nothing before a failure counts as over: a single one may have got no answer."""

FailureOf = Callable[[ClusterName], Awaitable[StartFailure | None]]
"""Why the controller's pod cannot start, without an age; None if nothing is known."""
Block = Callable[[ClusterName, str, str], None]
"""Stops requests in a cluster for a while; takes the reason and what a person can do."""


class SilentControllers:
    def __init__(
        self,
        failure_of: FailureOf,
        block: Block,
        announce: Callable[[Event], None],
        heard_s: Callable[[ClusterName], float | None],
        pull_hint: PullHint,
        clock: Clock,
    ) -> None:
        self._failure_of = failure_of
        self._block = block
        self._announce = announce
        self._heard_s = heard_s
        self._pull_hint = pull_hint
        self._clock = clock

    async def outwait(self, cluster: ClusterName) -> None:
        """Returns when the controller is heard again, or cannot be said to fail. Tells people once."""
        began_s, told = self._clock.monotonic_s(), ""
        last: StartFailure | None = None
        missed = 0
        for pause_s in pauses(PAUSE_FIRST_S, PAUSE_MOST_S):
            found = await self._failure_of(cluster)
            now_s = self._clock.monotonic_s()
            last, missed = found or last, 0 if found is not None else missed + 1
            if last is None or missed >= LOOKS or (self._heard_s(cluster) or 0.0) > began_s:
                return
            failure = structs.replace(last, for_s=now_s - began_s)
            if counts(failure):
                detail, hint = explain(failure, self._pull_hint)
                self._block(cluster, f"its controller cannot start: {detail}", hint)
                if hint != told:
                    told = hint
                    text = f"the controller of cluster {cluster} cannot start"
                    why = with_hint(detail, hint)
                    self._announce(Event(FLEET, "controller_failed", text, why, {"cluster": cluster}))
            await asyncio.sleep(pause_s)
