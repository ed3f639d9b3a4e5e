"""How long a notice takes to reach the master: from the preemption of a node with notice to the master's event.

The node's metadata, its state in the Kubernetes API and its pods report it at the same time; the first report counts.
The clock runs from the arrival of the call that preempts to the time of the master's `worker_noticed`; both are on this
machine.
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
_REPORTED_WITHIN_S: Final = 30.0


class Reported(Preemption, frozen=True, omit_defaults=True):
    reported_ms: float | None
    why: str = ""
    load: float = 0.0
    """Load average of the machine over the last minute."""
    problem: str | None = None


def first_notice(events: Sequence[Mapping[str, Any]], since_unix_s: float) -> Mapping[str, Any] | None:
    later = (event for event in events if event["kind"] == "worker_noticed" and event["at"] >= since_unix_s)
    return min(later, key=lambda event: float(event["at"]), default=None)


def measure(fleet: SimulatedFleet, number: int, victim: Node) -> Reported:
    load = os.getloadavg()[0]
    taken = fleet.preempt(victim.name, _NOTICE_S)
    try:
        reported = fleet.wait(
            lambda: first_notice(fleet.events(), taken.at_s), "the master to report the notice", _REPORTED_WITHIN_S
        )
    except StackFailed as failure:
        return Reported(number, victim.name, None, load=load, problem=str(failure))
    return Reported(number, victim.name, round((reported["at"] - taken.at_s) * 1000, 3), reported["why"], load)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(_NAME, __doc__, preemptions=10, what="number of nodes that get a notice")
    options = parser.parse_args(arguments)
    rounds: list[Reported] = []
    chance = random.Random(0)
    with simulated_fleet(_NODES) as fleet:
        for number in range(1, options.preemptions + 1):
            nodes = fleet.quiet(_NODES, workers=_NODES)
            rounds.append(measure(fleet, number, chance.choice(nodes)))
            print(f"notice {number} of {options.preemptions}: {rounds[-1].reported_ms} ms", file=sys.stderr, flush=True)
    return publish(_NAME, rounds, [done.reported_ms for done in rounds], _TARGETS_MS, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
