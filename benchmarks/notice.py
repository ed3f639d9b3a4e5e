"""How long a notice takes to the master: from the preemption of a node with notice to the master's event.

The node's metadata, its state in the Kubernetes API and its pods tell of it at the same time; whichever word is first
counts. The clock runs from the arrival of the call that preempts to the time that the master's `worker_noticed` bears;
both are of this machine.
"""

import os
import random
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.preemptions import Preemption, parser_of, publish
from benchmarks.simulated_fleet import Node, SimulatedFleet, simulated_fleet
from benchmarks.stacks import StackFailed

DESCRIPTION: Final = "milliseconds from a preemption with notice to the master's event"
_NAME: Final = "notice"
_TARGETS_MS: Final = {50.0: 100.0, 100.0: 100.0}
_NODES: Final = 2
_NOTICE_S: Final = 2.0
_TOLD_WITHIN_S: Final = 30.0


class Told(Preemption, frozen=True, omit_defaults=True):
    told_ms: float | None
    why: str = ""
    load: float = 0.0
    """Of the machine, as it counts it, over the last minute."""
    problem: str | None = None


def first_notice(events: Sequence[Mapping[str, Any]], since_unix_s: float) -> Mapping[str, Any] | None:
    later = (event for event in events if event["kind"] == "worker_noticed" and event["at"] >= since_unix_s)
    return min(later, key=lambda event: float(event["at"]), default=None)


def measure(fleet: SimulatedFleet, number: int, victim: Node) -> Told:
    load = os.getloadavg()[0]
    taken = fleet.preempt(victim.name, _NOTICE_S)
    try:
        told = fleet.wait(
            lambda: first_notice(fleet.events(), taken.at_s), "the master to tell of the notice", _TOLD_WITHIN_S
        )
    except StackFailed as failure:
        return Told(number, victim.name, None, load=load, problem=str(failure))
    return Told(number, victim.name, round((told["at"] - taken.at_s) * 1000, 3), told["why"], load)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(_NAME, __doc__, preemptions=10, what="how many nodes are given notice")
    options = parser.parse_args(arguments)
    rounds: list[Told] = []
    chance = random.Random(0)
    with simulated_fleet(_NODES) as fleet:
        for number in range(1, options.preemptions + 1):
            nodes = fleet.calm(_NODES, workers=_NODES)
            rounds.append(measure(fleet, number, chance.choice(nodes)))
            print(f"notice {number} of {options.preemptions}: {rounds[-1].told_ms} ms", file=sys.stderr, flush=True)
    return publish(_NAME, rounds, [done.told_ms for done in rounds], _TARGETS_MS, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
