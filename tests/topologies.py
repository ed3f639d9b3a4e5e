"""Receives a cluster-controller's reports like a master: the whole state after each of them."""

import asyncio
from collections.abc import Callable

from controlplane.jobs.cluster_views import Changes, ClusterView, Mismatch
from messages import subjects
from messages.clusters import ClusterHeartbeat
from messages.codec import Received
from messages.ids import ClusterName
from runtime.bus import Bus


async def hear_topologies(
    bus: Bus,
    cluster: ClusterName,
    hear: Callable[[ClusterHeartbeat], None],
    is_lost: Callable[[ClusterHeartbeat], bool] = lambda report: False,
) -> None:
    """Builds the states; `is_lost` selects reports that do not arrive."""
    view = ClusterView(cluster)

    def on_report(_subject: str, received: Received) -> None:
        report = received.message
        if not isinstance(report, ClusterHeartbeat) or is_lost(report):
            return
        now_s = asyncio.get_running_loop().time()
        outcome = view.take(report, now_s)
        if isinstance(outcome, Changes):
            hear(view.topology(now_s))
        elif isinstance(outcome, Mismatch) and outcome.ask is not None:
            bus.publish(subjects.cluster_command(cluster), outcome.ask)

    await bus.subscribe(subjects.cluster_heartbeat(cluster), on_report)
