"""How long it takes to request a replacement of a preempted node elsewhere, from the preemption to the cloud's API.

The benchmark preempts nodes of a job one after the other through the simulator's control endpoint, without notice and
with no operation in flight. The clock runs from the arrival of that call to the arrival of the request that grows
another pool, both in the simulator. Between them are the Kubernetes API, cluster-controller, bus and master.
"""

import os
import random
import sys
import time
from collections.abc import Sequence
from typing import Final

from benchmarks.preemptions import Preemption, parser_of, publish
from benchmarks.simulated_fleet import PACE_S, Call, Node, SimulatedFleet, simulated_fleet
from benchmarks.stacks import StackFailed

DESCRIPTION: Final = "milliseconds from a preemption to the request that grows another pool, at the cloud's API"
CONDITIONS: Final = (
    "the simulator reports at once that a node is gone (node monitor 0 s; the default is 1 s), "
    "and no operation is in flight"
)
_NAME: Final = "reaction"
_TARGETS_MS: Final = {50.0: 50.0, 99.0: 250.0}
_NODES: Final = 3
_RAISED_WITHIN_S: Final = 60.0
_UNDISTURBED_S: Final = 0.3
"""Seconds after a preemption in which nothing polls."""


class Reaction(Preemption, frozen=True, omit_defaults=True):
    reaction_ms: float | None
    request: str = ""
    load: float = 0.0
    """Load average of the machine over the last minute."""
    problem: str | None = None


def raising(calls: Sequence[Call], victim: Node) -> Call | None:
    """The first request for nodes in a pool other than the victim's; requests for the victim's pool shrink it."""
    for call in calls:
        if call.method in ("CreateNodePool", "SetNodePoolSize") and not call.target.endswith(f"/{victim.pool}"):
            return call
    return None


def measure(fleet: SimulatedFleet, number: int, victim: Node, notice_s: float) -> Reaction:
    load = os.getloadavg()[0]
    taken = fleet.preempt(victim.name, notice_s)
    time.sleep(_UNDISTURBED_S)
    try:
        raised = fleet.wait(
            lambda: raising(fleet.calls(taken.number, "gke"), victim), "another pool to grow", _RAISED_WITHIN_S
        )
    except StackFailed as failure:
        return Reaction(number, victim.name, None, load=load, problem=str(failure))
    reaction_ms = (raised.monotonic_s - taken.monotonic_s) * 1000
    return Reaction(number, victim.name, round(reaction_ms, 3), raised.method, load)


def measure_all(preemptions: int, notice_s: float) -> list[Reaction]:
    rounds: list[Reaction] = []
    chance = random.Random(0)
    with simulated_fleet(_NODES) as fleet:
        for number in range(1, preemptions + 1):
            nodes = fleet.quiet(_NODES)
            began_s = time.monotonic()
            rounds.append(measure(fleet, number, chance.choice(nodes), notice_s))
            print(f"preemption {number} of {preemptions}: {rounds[-1].reaction_ms} ms", file=sys.stderr, flush=True)
            time.sleep(max(0.0, began_s + PACE_S - time.monotonic()))
    return rounds


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(_NAME, __doc__, preemptions=100, what="number of nodes to preempt")
    parser.add_argument("--notice-s", type=float, default=0.0, help="notice in seconds; 0: no notice")
    options = parser.parse_args(arguments)
    if options.notice_s < 0:
        parser.error("--notice-s must be at least 0")

    print(CONDITIONS, file=sys.stderr, flush=True)
    rounds = measure_all(options.preemptions, options.notice_s)
    return publish(_NAME, rounds, [done.reaction_ms for done in rounds], _TARGETS_MS, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
