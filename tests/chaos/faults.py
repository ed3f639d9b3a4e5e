"""The faults of a run and when they happen: a pure function of the seed and the length.

Kinds are drawn from a shuffled deck, so that each has its share. A target rests after a fault, so that jobs can make
progress and a slow rank is not judged while a machine of its world is missing.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class Target(StrEnum):
    """What a fault hits. The first four are the names of the jobs."""

    KILLS = "kills"
    STOPS = "stops"
    SLOW = "slow"
    STALLED = "stalled"
    MASTER = "master"
    CONTROLLER = "controller"
    BUS = "bus"
    MESSAGES = "messages"
    KEYS = "keys"


JOBS = (Target.KILLS, Target.STOPS, Target.SLOW, Target.STALLED)


class Kind(StrEnum):
    KILL_AGENT = "kill agent"
    """SIGKILL to a worker-agent only; its host and trainers stay behind."""
    KILL_MACHINE = "kill machine"
    """SIGKILL to a worker-agent and all below it."""
    KILL_TWO = "kill two machines"
    KILL_HOST = "kill host"
    KILL_TRAINERS = "kill trainers"
    """SIGKILL to the trainers of one worker: counts as a failure of the script."""
    NOTICE = "notice"
    """SIGTERM to a worker-agent."""
    STOP_MACHINE = "stop machine"
    """SIGSTOP to a worker-agent and all below it, later SIGCONT."""
    SLOW_RANK = "slow rank"
    """One rank sleeps in its loop body for less than `stall_s`."""
    STALL_RANK = "stall rank"
    """One rank never leaves its loop body."""
    KILL_LEADER = "kill leader"
    STOP_LEADER = "stop leader"
    KILL_CONTROLLER = "kill controller"
    STOP_CONTROLLER = "stop controller"
    RESTART_BUS = "restart bus"
    """SIGTERM to the nats-server, which keeps its data."""
    KILL_BUS = "kill bus"
    FORGE_GARBAGE = "forge garbage"
    FORGE_DEEP_JSON = "forge deep JSON"
    FORGE_GENERATION = "forge generation"
    """A fact of a real worker with generation 2^53."""
    FORGE_UNKNOWN_WORKER = "forge unknown worker"
    FORGE_CLUSTER = "forge cluster"
    """A topology of a cluster that does not exist, so that workers are expected from it."""
    FORGE_OLD_FACT = "forge old fact"
    """A fact of a real worker that it may have sent long ago."""
    FORGE_OTHER_JOB = "forge other job"
    """A fact of a real worker that names another job."""
    FORGE_EVENT = "forge event"
    """An event whose text has line breaks."""
    FORGE_PROGRESS = "forge progress"
    GARBAGE_KEY = "garbage key"
    """Undecodable values in keys that belong to no live job."""
    GARBAGE_LEADER = "garbage leader key"


KV_KINDS = (Kind.GARBAGE_KEY, Kind.GARBAGE_LEADER)


@dataclass(frozen=True)
class Card:
    kind: Kind
    target: Target
    count: int
    """How often it is in one deck."""
    rest_s: float = 0.0
    """Seconds without another fault on the same target, after the end of this one."""
    lasts_s: tuple[float, float] = (0.0, 0.0)
    """Range of its duration in seconds."""


DECK = (
    Card(Kind.KILL_AGENT, Target.KILLS, 2, rest_s=6),
    Card(Kind.KILL_MACHINE, Target.KILLS, 3, rest_s=6),
    Card(Kind.KILL_TWO, Target.KILLS, 2, rest_s=12),
    Card(Kind.KILL_HOST, Target.KILLS, 2, rest_s=6),
    Card(Kind.KILL_TRAINERS, Target.KILLS, 1, rest_s=6),
    Card(Kind.NOTICE, Target.STOPS, 3, rest_s=6),
    Card(Kind.STOP_MACHINE, Target.STOPS, 3, rest_s=6, lasts_s=(3, 9)),
    Card(Kind.SLOW_RANK, Target.SLOW, 3, rest_s=6, lasts_s=(2, 8)),
    Card(Kind.KILL_MACHINE, Target.SLOW, 1, rest_s=30),
    Card(Kind.STALL_RANK, Target.STALLED, 1, rest_s=40),
    Card(Kind.KILL_LEADER, Target.MASTER, 2, rest_s=8),
    Card(Kind.STOP_LEADER, Target.MASTER, 1, rest_s=8, lasts_s=(10, 10)),
    Card(Kind.KILL_CONTROLLER, Target.CONTROLLER, 2, rest_s=8),
    Card(Kind.STOP_CONTROLLER, Target.CONTROLLER, 1, rest_s=8, lasts_s=(10, 10)),
    Card(Kind.RESTART_BUS, Target.BUS, 1, rest_s=20),
    Card(Kind.KILL_BUS, Target.BUS, 1, rest_s=20),
    Card(Kind.FORGE_GARBAGE, Target.MESSAGES, 1),
    Card(Kind.FORGE_DEEP_JSON, Target.MESSAGES, 1),
    Card(Kind.FORGE_GENERATION, Target.MESSAGES, 2),
    Card(Kind.FORGE_UNKNOWN_WORKER, Target.MESSAGES, 1),
    Card(Kind.FORGE_CLUSTER, Target.MESSAGES, 1),
    Card(Kind.FORGE_OLD_FACT, Target.MESSAGES, 1),
    Card(Kind.FORGE_OTHER_JOB, Target.MESSAGES, 1),
    Card(Kind.FORGE_EVENT, Target.MESSAGES, 1),
    Card(Kind.FORGE_PROGRESS, Target.MESSAGES, 1),
    Card(Kind.GARBAGE_KEY, Target.KEYS, 1),
    Card(Kind.GARBAGE_LEADER, Target.KEYS, 1),
)
OPENING = (
    Kind.SLOW_RANK,
    Kind.STALL_RANK,
    Kind.KILL_MACHINE,
    Kind.STOP_MACHINE,
    Kind.KILL_LEADER,
    Kind.FORGE_GENERATION,
)
"""Kinds that even the shortest run has."""

GAP_S = (3.0, 6.0)
BUSY_S = 50.0
QUIET_S = 12.0
"""Seconds of each period with faults and of each period without."""
LAST_QUIET_S = 8.0


@dataclass(frozen=True)
class Fault:
    at_s: float
    kind: Kind
    target: Target
    lasts_s: float
    draw: int
    """Chooses the victim among the candidates."""


def schedule(seed: int, minutes: float, without: Collection[Kind] = ()) -> tuple[Fault, ...]:
    chance = random.Random(seed)
    deck = [card for card in DECK if card.kind not in without]
    waiting = _opening(chance, deck)
    rests_until_s = dict.fromkeys(Target, 0.0)
    faults: list[Fault] = []
    at_s, busy_until_s = chance.uniform(*GAP_S), BUSY_S
    while at_s < minutes * 60 - LAST_QUIET_S:
        if len(waiting) < len(deck):
            waiting += _shuffled(chance, deck)
        card = next(card for card in waiting if rests_until_s[card.target] <= at_s)
        waiting.remove(card)
        lasts_s = round(chance.uniform(*card.lasts_s), 1)
        faults.append(Fault(round(at_s, 1), card.kind, card.target, lasts_s, chance.randrange(1 << 30)))
        rests_until_s[card.target] = at_s + lasts_s + card.rest_s
        at_s += chance.uniform(*GAP_S)
        if at_s > busy_until_s:
            at_s += QUIET_S
            busy_until_s = at_s + BUSY_S
    return tuple(faults)


def count(faults: tuple[Fault, ...], kind: Kind) -> int:
    return sum(fault.kind is kind for fault in faults)


def _opening(chance: random.Random, deck: list[Card]) -> list[Card]:
    by_kind = {card.kind: card for card in reversed(deck)}
    first = [by_kind[kind] for kind in OPENING if kind in by_kind]
    rest = _shuffled(chance, deck)
    for card in first:
        rest.remove(card)
    chance.shuffle(first)
    return first + rest


def _shuffled(chance: random.Random, deck: list[Card]) -> list[Card]:
    cards = [card for card in deck for _ in range(card.count)]
    chance.shuffle(cards)
    return cards
