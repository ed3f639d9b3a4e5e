"""How long training stops when workers are lost without notice: from the kill to a step on all survivors.

The benchmark kills all processes of a worker at once, at a random moment of a step: those of the last rank, of rank 0,
or of two ranks. `silent` stops them instead, so that no connection breaks, and wakes them after the others have
continued. Settings are the defaults. A replacement comes after the round. The peers run afterwards: tuned torchrun with
the script and the clock of the restart benchmark and steps of the same duration, until the first rank has a step; and
torchft with the same model, if an interpreter with torchft is given.
"""

import random
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from benchmarks import torchrun_peer
from benchmarks.live import torchft_peer, trace
from benchmarks.live.fleet import UNWATCHED_S, LiveFleet, Recipe, at_a_random_moment, live_fleet, strike
from benchmarks.live.options import check, delayed_world, distances, parser_of
from benchmarks.live.report import Row, Target, publish, result_of
from benchmarks.live.trace import Traced
from benchmarks.stacks import StackFailed

DESCRIPTION: Final = "milliseconds from the SIGKILL of workers to a step on all survivors, against torchrun and torchft"
_NAME: Final = "loss"
CASES: Final = ("last", "rank 0", "two", "silent")
_BESIDE: Final = {"side": "ours", "round_trip_ms": 0.0}
_KILLED: Final = ("last", "rank 0", "two")
_TWO_MORE_MS: Final = round(Recipe().sleep_ms * (4 / 2 - 4 / 3))
"""Extra compute time of two survivors of four: each computes half of the batch, not a third as three survivors do."""
_TARGETS: Final = (
    *(Target("recovery_ms", {**_BESIDE, "world": 4, "case": case}, 130.0) for case in ("last", "rank 0")),
    Target("recovery_ms", {**_BESIDE, "world": 4, "case": "two"}, 130.0 + _TWO_MORE_MS),
    *(Target("recovery_ms", {**_BESIDE, "world": 4, "case": case}, 300.0, "most") for case in _KILLED),
    *(Target("recovery_ms", {**_BESIDE, "world": 8, "case": case}, 200.0) for case in _KILLED),
    *(Target("recovery_ms", {**_BESIDE, "world": world, "case": "silent"}, 1000.0) for world in (2, 4, 8)),
)
_PROTOCOL: Final = {
    "bus": "2: a report to the master and the halt back, each state to the master and the assignment back; and 1 "
    "between master and bus to save the decision before it is published. The halt is published before it is saved",
    "store": "2: each rank publishes its address, then requests all addresses at once (a wait and a get)",
    "collectives": "none to agree; 1 broadcast if a survivor missed the last all-reduce",
}
PHASES: Final = (
    "fell_out_ms",
    "halted_ms",
    "halt_heard_ms",
    "decided_ms",
    "assigned_ms",
    "built_ms",
    "computed_ms",
    "recovery_ms",
)
_RECOVERED_WITHIN_S: Final = 30.0
_REPORTED_WITHIN_S: Final = 10.0
_AWAKE_S: Final = 0.5
_POLL_S: Final = 0.05


def victims_of(case: str, world: int) -> tuple[int, ...]:
    """Ranks to kill; empty if the world is too small for the case."""
    match case:
        case "rank 0":
            return (0,)
        case "two":
            return (0, 2) if world > 2 else ()
        case _:
            return (world - 1,)


def lose(fleet: LiveFleet, case: str, world: int, chance: random.Random) -> Row:
    fleet.let_in()
    before = fleet.steady(world)
    fleet.hold_back()
    places = fleet.places(before)
    lost = [places.pop(rank) for rank in victims_of(case, world)]
    victims = [pid for place in lost for pid in place.pids()]
    survivors = [place.trainer for place in places.values()]
    at_a_random_moment(chance)
    struck_s = strike(victims, signal.SIGSTOP if case == "silent" else signal.SIGKILL)
    time.sleep(UNWATCHED_S)
    fleet.wait(
        lambda: trace.last_of_all(fleet.trace(), "step", survivors, before.generation, struck_s),
        f"{len(survivors)} survivors to continue",
        _RECOVERED_WITHIN_S,
    )
    reported = _reported_events(fleet, struck_s, len(lost))
    row = phases(fleet.trace(), reported, survivors, before.generation, struck_s)
    if case == "silent":
        strike(victims, signal.SIGCONT)
        time.sleep(_AWAKE_S)
        strike(victims, signal.SIGKILL)
    verdict = fleet.audit(world - len(lost))
    waking = [place.trainer for place in lost]
    later = [each for each in fleet.trace() if each.what == "step" and each.pid in waking and each.at > struck_s + 0.1]
    gone = sum(event["kind"] == "worker_gone" for event in reported)
    return {
        **row,
        "healthy_dropped": max(0, gone - len(lost)),
        "steps_of_the_lost": len(later),
        "lost": verdict.lost,
        "repeated": verdict.repeated + verdict.recomputed,
        "wrong": verdict.wrong,
        "identical": verdict.identical,
    }


def _reported_events(fleet: LiveFleet, since_s: float, lost: int) -> list[dict[str, Any]]:
    """The master's events after the new world runs and all losses are reported."""
    found: list[dict[str, Any]] = []

    def look() -> bool:
        found[:] = [event for event in fleet.events() if event["at"] >= since_s]
        kinds = [event["kind"] for event in found]
        time.sleep(_POLL_S)
        return "world_running" in kinds and kinds.count("worker_gone") >= lost

    fleet.wait(look, "the master to report the new world", _REPORTED_WITHIN_S)
    return found


def phases(
    events: Sequence[Traced],
    reported: Sequence[Mapping[str, Any]],
    survivors: Sequence[int],
    generation: int,
    struck_s: float,
) -> dict[str, Any]:
    """Moments of a recovery in ms after the kill, mostly those of the last survivor."""
    committed = [trace.first_of(events, "step", pid, generation, struck_s) for pid in survivors]
    steps = {step.pid: step for step in committed if step is not None}

    def all_of(what: str) -> float | None:
        return trace.last_of_all(events, what, survivors, generation, struck_s)

    def master(kind: str) -> float | None:
        return next((event["at"] for event in reported if event["kind"] == kind), None)

    computed = [
        event.at
        for event in events
        if event.what == "computed" and event.pid in steps and struck_s < event.at < steps[event.pid].at
    ]
    fell_out = [event.at for event in events if event.what == "fell_out" and event.at > struck_s]
    moments = {
        "fell_out_ms": min(fell_out, default=None),
        "halted_ms": master("world_halted"),
        "halt_heard_ms": all_of("halt"),
        "decided_ms": master("world_decided"),
        "assigned_ms": all_of("assign"),
        "built_ms": all_of("built"),
        "computed_ms": max(computed, default=None),
        "recovery_ms": all_of("step"),
    }
    caught_up = sum(event.what == "caught_up" and event.at > struck_s for event in events)
    rounds = sum(event["kind"] == "world_halted" for event in reported)
    known = {name: (at_s - struck_s) * 1000 for name, at_s in moments.items() if at_s is not None}
    return {**known, "laggards": caught_up, "halts": rounds}


def measure(
    rounds: int, worlds: Sequence[int], delays_ms: Sequence[float], cases: Sequence[str], recipe: Recipe
) -> list[Row]:
    found: list[Row] = []
    for world, round_trip_ms in distances(worlds, delays_ms):
        possible = [case for case in cases if victims_of(case, world)]
        chosen = [case for case in possible if case == possible[0] or not round_trip_ms]
        for row in _measure_world(world, round_trip_ms, chosen, rounds, recipe):
            found.append(row)
            _say(row)
    return found


def _measure_world(
    world: int, round_trip_ms: float, cases: Sequence[str], rounds: int, recipe: Recipe
) -> Iterator[Row]:
    """Rounds of one world. A failure ends them with a row that has the ends of the logs."""
    chance = random.Random(world)
    of = {"side": "ours", "world": world, "case": cases[0], "round_trip_ms": round_trip_ms, "number": 1}
    try:
        with live_fleet(world, recipe, round_trip_ms=round_trip_ms) as fleet:
            for number, case in ((number, case) for number in range(rounds) for case in cases):
                of |= {"case": case, "number": number + 1}
                yield {**of, **lose(fleet, case, world, chance)}
    except StackFailed as failure:
        yield {**of, "problem": str(failure)}


def measure_torchrun(rounds: int, world: int) -> list[Row]:
    found: list[Row] = []
    for number in range(rounds):
        of = {"side": "torchrun tuned", "world": world, "case": "last", "round_trip_ms": 0.0, "number": number + 1}
        done = torchrun_peer.restart_seconds(workers=world)
        figure = {"problem": done.problem} if done.restart_s is None else {"recovery_ms": done.restart_s * 1000}
        found.append({**of, **figure})
        _say(found[-1])
    return found


def _say(row: Row) -> None:
    case = f"{row['side']}, world {row['world']}, {row['case']}, {row['round_trip_ms']:g} ms away, {row['number']}"
    reported = row.get("problem") or ", ".join(f"{name} {row[name]:.0f}" for name in PHASES if name in row)
    print(f"{case}: {reported}", file=sys.stderr, flush=True)


def _holds(row: Row) -> bool:
    exact = row["identical"] and row["lost"] == row["repeated"] == row["wrong"] == 0
    return bool(exact) and row["healthy_dropped"] == row["steps_of_the_lost"] == 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(_NAME, __doc__)
    parser.add_argument("--cases", default=",".join(CASES), help="any of: last, rank 0, two, silent  [all]")
    parser.add_argument("--peer-rounds", type=int, help="rounds of torchrun and torchft; 0 for none  [--rounds]")
    parser.add_argument("--torchft-python", metavar="PATH", help="an interpreter with torchft and torch")
    options = parser.parse_args(arguments)
    check(parser, options)
    cases = tuple(options.cases.split(","))
    unknown = set(cases) - set(CASES)
    if unknown:
        parser.error(f"--cases: unknown {', '.join(sorted(unknown))}; known are {', '.join(CASES)}")

    rounds = measure(options.rounds, options.worlds, options.delay_ms, cases, Recipe(sleep_ms=options.sleep_ms))
    peers = options.rounds if options.peer_rounds is None else options.peer_rounds
    world = delayed_world(options.worlds)
    rounds += measure_torchrun(peers, world)
    if options.torchft_python:
        for settings in torchft_peer.SETTINGS:
            for row in torchft_peer.measure(options.torchft_python, settings, peers, world):
                rounds.append(row)
                _say(row)
    result = result_of(
        _NAME,
        rounds=rounds,
        targets=_TARGETS,
        ratio="recovery_ms",
        protocol=_PROTOCOL,
        distant=PHASES,
        must_hold=_holds,
    )
    return publish(result, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
