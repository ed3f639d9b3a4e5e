"""How long a notice takes to the master: from the preemption of a node with notice to the master's event.

The node's metadata, its state in the Kubernetes API and its pods tell of it at the same time; whichever word is first
counts. The clock runs from the arrival of the call that preempts to the time that the master's `worker_noticed` bears;
both are of this machine.
"""

import argparse
import os
import random
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from benchmarks import report
from benchmarks.simulated_fleet import FleetFailed, Node, SimulatedFleet, simulated_fleet

DESCRIPTION: Final = "milliseconds from a preemption with notice to the master's event"
_NAME: Final = "notice"
_TARGETS_MS: Final = {50.0: 100.0, 100.0: 100.0}
_NODES: Final = 2
_NOTICE_S: Final = 2.0
_TOLD_WITHIN_S: Final = 30.0


class Told(Struct, frozen=True, omit_defaults=True):
    """`told_ms` is None if the master said nothing in time: then `problem` says why."""

    number: int
    node: str
    told_ms: float | None
    why: str = ""
    load: float = 0.0
    """Of the machine, as it counts it, over the last minute."""
    problem: str | None = None

    def raw(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields


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
    except FleetFailed as failure:
        return Told(number, victim.name, None, load=load, problem=str(failure))
    return Told(number, victim.name, round((told["at"] - taken.at_s) * 1000, 3), told["why"], load)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{_NAME}", description=__doc__)
    parser.add_argument("--preemptions", type=int, default=10, help="how many nodes are given notice")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    if options.preemptions < 1:
        parser.error("--preemptions must be at least 1")

    rounds: list[Told] = []
    chance = random.Random(0)
    with simulated_fleet(_NODES) as fleet:
        for number in range(1, options.preemptions + 1):
            nodes = fleet.calm(_NODES, workers=_NODES)
            rounds.append(measure(fleet, number, chance.choice(nodes)))
            print(f"notice {number} of {options.preemptions}: {rounds[-1].told_ms} ms", file=sys.stderr, flush=True)
    result = report.hold(
        _NAME,
        "ms",
        ours=[done.told_ms for done in rounds],
        targets=_TARGETS_MS,
        rounds=[done.raw() for done in rounds],
    )
    return report.publish(result, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
