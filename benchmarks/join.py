"""What a joining worker costs the others: it starts, is warm, and enters with nothing but its model.

The clock runs from the moment when the joining worker has built its model and asks to enter. The pause is the time that
the others lose, as in a hand-over: from the end of the last old step on all of them to the end of the first new one,
minus the median step before. With 250 MB a larger ring alone makes every step longer; `beyond_ring_ms` excludes that.
"""

import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from benchmarks.live import trace
from benchmarks.live.fleet import SETTLE_STEPS, LiveFleet, Recipe, at_a_random_moment, live_fleet
from benchmarks.live.options import check, delayed_world, distances, parser_of
from benchmarks.live.report import Row, Target, publish, result_of
from benchmarks.live.trace import Moment, Traced
from benchmarks.stacks import StackFailed

DESCRIPTION: Final = "milliseconds that a worker's joining costs the others, with 25 MB and 250 MB of state"
_NAME: Final = "join"
_WIDTHS: Final = {25: 1024, 250: 4096}
_LARGE_NOISE_MS: Final = 60.0
_TARGETS: Final = (
    *(Target("pause_ms", {"world": world, "state_mb": 25, "round_trip_ms": 0.0}, 20.0) for world in (2, 4)),
    Target("beyond_ring_ms", {"world": 4, "state_mb": 250, "round_trip_ms": 0.0}, _LARGE_NOISE_MS),
)
_PROTOCOL: Final = {
    "bus": "1 from asking to the assignment (worker to master, master to workers), and 1 between master and bus to "
    "save the decision in between; none at the switch, none from there to active",
    "store": "2, in the background, while training continues",
    "training": "none: readiness of all, and that the joining worker has caught up, travel in the all-reduce",
}


def join(fleet: LiveFleet, world: int, sleep_ms: float, chance: random.Random) -> Row:
    """Scales from `world` ranks to one more, and back."""
    before = fleet.steady(world)
    at_a_random_moment(chance)
    fleet.scale(world + 1)
    fleet.steady(world + 1)
    row = figures(fleet.trace(), before, sleep_ms)
    verdict = fleet.audit(world + 1)
    fleet.scale(world)
    return {
        **row,
        "lost": verdict.lost,
        "repeated": verdict.repeated + verdict.recomputed,
        "wrong": verdict.wrong,
        "identical": verdict.identical,
    }


def figures(events: Sequence[Traced], before: Moment, sleep_ms: float) -> dict[str, Any]:
    """Figures of one join; `sleep_ms` is the sleep for the whole batch."""
    world, others = len(before.ranks), list(before.ranks.values())
    active = next((each for each in events if each.what == "active" and each.generation > before.generation), None)
    if active is None:
        raise StackFailed("the joining worker did not become active")
    asked = next(each for each in events if each.what == "asked" and each.pid == active.pid)
    switched_s = trace.last_of_all(events, "switched", others, before.generation, asked.at)
    firsts = [trace.first_of(events, "step", pid, before.generation, asked.at) for pid in others]
    if switched_s is None or None in firsts:
        raise StackFailed("a rank did not switch to the new world")
    first = max(step.step for step in firsts if step is not None)
    steps = [trace.steps_of(events, pid) for pid in others]
    old = [trace.durations(own, before.step - SETTLE_STEPS, before.step) for own in steps]
    new = [trace.durations(own, active.step + 2, active.step + 1 + SETTLE_STEPS) for own in steps]
    whole = trace.as_one(steps)
    between = trace.durations(whole, first, active.step)
    at_switch_ms = trace.slowest(trace.durations(own, first, first) for own in steps)[first]
    before_ms, after_ms = trace.median_of(old) or 0.0, trace.median_of(new) or 0.0
    ring_ms = after_ms + sleep_ms * (1 / world - 1 / (world + 1))
    return {
        "pause_ms": between[first] - before_ms,
        "beyond_ring_ms": between[first] - max(before_ms, ring_ms),
        "slowest_rank_ms": at_switch_ms - before_ms,
        "ordinary_slowest_rank_ms": statistics.median(trace.slowest(old).values()) - before_ms,
        "excess_until_active_ms": sum(took_ms - before_ms for took_ms in between.values()),
        "ask_to_switch_ms": (switched_s - asked.at) * 1000,
        "ask_to_active_ms": (active.at - asked.at) * 1000,
        "steps_to_active": active.step - first + 1,
        "step_before_ms": before_ms,
        "step_after_ms": after_ms,
    }


def measure(
    rounds: int, worlds: Sequence[int], delays_ms: Sequence[float], states_mb: Sequence[int], sleep_ms: float
) -> list[Row]:
    found: list[Row] = []
    for state_mb in states_mb:
        for world, round_trip_ms in (
            distances(worlds, delays_ms) if state_mb == min(states_mb) else [(delayed_world(worlds), 0.0)]
        ):
            of = {"side": "ours", "world": world, "state_mb": state_mb, "round_trip_ms": round_trip_ms}
            for row in _measure_world(of, rounds, sleep_ms):
                found.append(row)
                print(_reported(row), file=sys.stderr, flush=True)
    return found


def _measure_world(of: dict[str, Any], rounds: int, sleep_ms: float) -> Iterator[Row]:
    """Rounds of one world. A failure ends them with a row that has the ends of the logs."""
    world, recipe = of["world"], Recipe(width=_WIDTHS[of["state_mb"]], sleep_ms=sleep_ms)
    chance, number = random.Random(world), 1
    try:
        with live_fleet(world + 1, recipe, round_trip_ms=of["round_trip_ms"]) as fleet:
            fleet.scale(world)
            for number in range(1, rounds + 1):
                yield {**of, "number": number, **join(fleet, world, recipe.sleep_ms * (world + 1), chance)}
    except StackFailed as failure:
        yield {**of, "number": number, "problem": str(failure)}


def _reported(row: Row) -> str:
    case = f"world {row['world']}, {row['state_mb']} MB, {row['round_trip_ms']:g} ms away, round {row['number']}"
    if "problem" in row:
        return f"{case}: {row['problem']}"
    return f"{case}: pause {row['pause_ms']:.1f} ms, ask to active {row['ask_to_active_ms']:.0f} ms"


def _holds(row: Row) -> bool:
    return bool(row["identical"]) and row["lost"] == row["repeated"] == row["wrong"] == 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(_NAME, __doc__)
    parser.add_argument(
        "--state-mb", default="25,250", metavar="MB,MB", help="size of parameters and optimizer state  [25,250]"
    )
    options = parser.parse_args(arguments)
    check(parser, options)
    states_mb = tuple(int(part) for part in options.state_mb.split(",") if part.isdigit() and int(part) in _WIDTHS)
    if not states_mb:
        parser.error(f"--state-mb must be one or more of {', '.join(map(str, _WIDTHS))}")
    rounds = measure(options.rounds, options.worlds, options.delay_ms, states_mb, options.sleep_ms)
    result = result_of(
        _NAME,
        rounds=rounds,
        targets=_TARGETS,
        protocol=_PROTOCOL,
        distant=("pause_ms", "ask_to_switch_ms", "ask_to_active_ms"),
        must_hold=_holds,
    )
    return publish(result, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
