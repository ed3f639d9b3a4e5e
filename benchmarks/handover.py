"""What a planned hand-over costs: a worker gets a notice at a random moment of a step, and leaves.

The pause is the time that the world loses: from the last survivor's end of the last old step to the last survivor's end
of the first new one, minus the usual duration of a step. The slowest rank is the worst that one survivor sees: a rank
that ends the step before early waits longer in this one, in ordinary steps too. A replacement comes after the round.
"""

import random
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from benchmarks.live import trace
from benchmarks.live.fleet import (
    SETTLE_STEPS,
    LiveFleet,
    Place,
    Recipe,
    at_a_random_moment,
    live_fleet,
    strike,
)
from benchmarks.live.options import check, distances, parser_of
from benchmarks.live.report import Row, Target, publish, result_of
from benchmarks.live.trace import Moment, Traced
from benchmarks.processes import command_line
from benchmarks.stacks import StackFailed

DESCRIPTION: Final = "milliseconds that a planned hand-over costs the survivors, and from the notice to the switch"
_NAME: Final = "handover"
_TARGETS: Final = (
    Target("pause_ms", {"world": 4, "round_trip_ms": 0.0}, 10.0),
    Target("notice_to_switch_ms", {"world": 4, "round_trip_ms": 0.0}, 300.0),
)
_PROTOCOL: Final = {
    "bus": "1 from the notice to the assignment (worker to master, master to workers), and 1 between master and bus "
    "to save the decision in between; none at the switch",
    "store": "2, in the background, while training continues",
    "training": "none: readiness travels in the all-reduce",
}
_CHANGED_WITHIN_S: Final = 30.0
_LEFT_WITHIN_S: Final = 20.0


def hand_over(fleet: LiveFleet, number: int, world: int, chance: random.Random) -> Row:
    fleet.let_in()
    before = fleet.steady(world)
    fleet.hold_back()
    places = fleet.places(before)
    leaving_worker = places.pop((world - 1, 0, 1)[number % 3] % world)
    at_a_random_moment(chance)
    noticed_s = strike([leaving_worker.agent], signal.SIGTERM)
    left_s = _when_left(fleet, leaving_worker)
    fleet.steady(world - 1, timeout_s=_CHANGED_WITHIN_S)
    row = figures(fleet.trace(), before, [place.trainer for place in places.values()], noticed_s)
    verdict = fleet.audit(world - 1)
    released = {"released_after_switch_ms": (left_s - noticed_s) * 1000 - row["notice_to_switch_ms"]}
    return {
        "leaving": leaving_worker.rank,
        **row,
        **released,
        "lost": verdict.lost,
        "repeated": verdict.repeated + verdict.recomputed,
        "wrong": verdict.wrong,
        "identical": verdict.identical,
    }


def figures(events: Sequence[Traced], before: Moment, survivors: Sequence[int], noticed_s: float) -> dict[str, Any]:
    """Figures of one hand-over, from the traces of the survivors."""
    switched_s = trace.last_of_all(events, "switched", survivors, before.generation, noticed_s)
    firsts = [trace.first_of(events, "step", pid, before.generation, noticed_s) for pid in survivors]
    if switched_s is None or None in firsts:
        raise StackFailed("a survivor did not switch to the new world")
    first = max(step.step for step in firsts if step is not None)
    steps = [trace.steps_of(events, pid) for pid in survivors]
    old = [trace.durations(own, first - 1 - SETTLE_STEPS, first - 1) for own in steps]
    new = [trace.durations(own, first + 1, first + SETTLE_STEPS) for own in steps]
    before_ms, after_ms = trace.median_of(old) or 0.0, trace.median_of(new) or 0.0
    whole = trace.as_one(steps)
    usual = trace.durations(whole, first + 1, first + SETTLE_STEPS)
    pause_ms = trace.durations(whole, first, first)[first] - statistics.median(usual.values())
    at_switch_ms = trace.slowest(trace.durations(own, first, first) for own in steps)[first]
    return {
        "pause_ms": pause_ms,
        "lost_since_notice_ms": pause_ms + _lost_before_ms(whole, first, noticed_s),
        "ordinary_p90_ms": statistics.quantiles(_beyond(usual), n=10)[-1],
        "slowest_rank_ms": at_switch_ms - after_ms,
        "ordinary_slowest_rank_ms": statistics.median(
            [*_beyond(trace.slowest(old), before_ms), *_beyond(trace.slowest(new), after_ms)]
        ),
        "notice_to_switch_ms": (switched_s - noticed_s) * 1000,
        "steps_to_switch": sum(noticed_s < step.at <= switched_s for step in steps[0]),
        "step_before_ms": before_ms,
        "step_after_ms": after_ms,
        "built_ms": _built_ms(events, survivors, before.generation, noticed_s),
    }


def _beyond(took_ms: Mapping[int, float], usual_ms: float | None = None) -> list[float]:
    """How much longer each step took than `usual_ms`, by default the steps' median."""
    usual_ms = statistics.median(took_ms.values()) if usual_ms is None else usual_ms
    return [each_ms - usual_ms for each_ms in took_ms.values()]


def _lost_before_ms(whole: Sequence[Traced], first: int, noticed_s: float) -> float:
    """Time lost in the steps between notice and switch, during which the new group is built."""
    noticed = min(step.step for step in whole if step.at > noticed_s)
    usual_ms = statistics.median(trace.durations(whole, noticed - SETTLE_STEPS, noticed - 1).values())
    return sum(took_ms - usual_ms for took_ms in trace.durations(whole, noticed, first - 1).values())


def _built_ms(events: Sequence[Traced], survivors: Sequence[int], generation: int, noticed_s: float) -> float:
    built_s = trace.last_of_all(events, "built", survivors, generation, noticed_s)
    assigned_s = trace.last_of_all(events, "assign", survivors, generation, noticed_s)
    return (built_s - assigned_s) * 1000 if built_s is not None and assigned_s is not None else 0.0


def _when_left(fleet: LiveFleet, leaving_worker: Place) -> float:
    def look() -> float | None:
        return None if "tradewind worker" in command_line(leaving_worker.agent) else time.monotonic()

    return fleet.wait(look, f"the worker of rank {leaving_worker.rank} to leave", _LEFT_WITHIN_S)


def measure(rounds: int, worlds: Sequence[int], delays_ms: Sequence[float], recipe: Recipe) -> list[Row]:
    found: list[Row] = []
    for world, round_trip_ms in distances(worlds, delays_ms):
        for row in _measure_world(world, round_trip_ms, rounds, recipe):
            found.append(row)
            print(_reported(row), file=sys.stderr, flush=True)
    return found


def _measure_world(world: int, round_trip_ms: float, rounds: int, recipe: Recipe) -> Iterator[Row]:
    """Rounds of one world. A failure ends them with a row that has the ends of the logs."""
    chance, number = random.Random(world), 0
    of = {"side": "ours", "world": world, "round_trip_ms": round_trip_ms}
    try:
        with live_fleet(world, recipe, round_trip_ms=round_trip_ms) as fleet:
            for number in range(rounds):
                yield {**of, "number": number + 1, **hand_over(fleet, number, world, chance)}
    except StackFailed as failure:
        yield {**of, "number": number + 1, "problem": str(failure)}


def _holds(row: Row) -> bool:
    exact = row["identical"] and row["lost"] == row["repeated"] == row["wrong"] == 0
    return bool(exact) and row["released_after_switch_ms"] >= 0


def _reported(row: Row) -> str:
    case = f"world {row['world']}, {row['round_trip_ms']:g} ms away, round {row['number']}"
    if "problem" in row:
        return f"{case}: {row['problem']}"
    pauses = f"pause {row['pause_ms']:.1f} ms (slowest rank {row['slowest_rank_ms']:.1f} ms)"
    return f"{case}: {pauses}, notice to switch {row['notice_to_switch_ms']:.0f} ms"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(_NAME, __doc__)
    options = parser.parse_args(arguments)
    check(parser, options)
    rounds = measure(options.rounds, options.worlds, options.delay_ms, Recipe(sleep_ms=options.sleep_ms))
    result = result_of(
        _NAME,
        rounds=rounds,
        targets=_TARGETS,
        protocol=_PROTOCOL,
        distant=("pause_ms", "notice_to_switch_ms", "built_ms"),
        must_hold=_holds,
    )
    return publish(result, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
