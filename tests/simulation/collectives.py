"""Process groups of live trainers: ranks that have come, that are inside, that have the result when the group breaks.

A collective completes when every rank of the group has entered it. When the group breaks after that, some ranks have
the result and others have not. When it breaks before, no rank has it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from tests.simulation.clockwork import Broken, Clockwork
from tradewind.protocol.trainer import Assign

COLLECTIVE_S = 0.02
OVERDUE_S = 0.5
BUILD_TIMEOUT_S = 10.0
RETIRED_S = 1.0
LOOK_S = 0.1


class Rank(Protocol):
    """A trainer, as far as its process groups need it."""

    @property
    def worker(self) -> str: ...
    @property
    def alive(self) -> bool: ...
    @property
    def silent(self) -> bool: ...
    def on_built(self, generation: int) -> None: ...
    def on_build_failed(self, generation: int) -> None: ...
    def on_result(self, result: Any) -> None: ...
    def on_waited_long(self) -> None: ...


@dataclass(eq=False)
class Collective:
    kind: str
    started_s: float
    parts: dict[int, Any] = field(default_factory=dict)
    waiting: dict[int, float] = field(default_factory=dict)
    """Ranks without a result, and the time since which they wait."""
    result: Any = None
    is_complete: bool = False


@dataclass(eq=False)
class Group:
    assign: Assign
    """The order of one of its ranks; the world is the same for all."""
    members: dict[int, Rank] = field(default_factory=dict)
    """Ranks whose builders have come."""
    is_connected: bool = False
    is_broken: bool = False
    entered: Counter[int] = field(default_factory=Counter)
    """Number of collectives that each rank has entered."""
    collectives: list[Collective] = field(default_factory=list)

    @property
    def size(self) -> int:
        return self.assign.world_size

    @property
    def generation(self) -> int:
        return self.assign.generation


class Groups:
    def __init__(
        self,
        clockwork: Clockwork,
        serves: Callable[[int], bool],
        combine: Callable[[Group, str, dict[int, Any]], Any],
    ) -> None:
        """`serves`: True if the store at this port is there. `combine`: the result of a collective's parts."""
        self._clockwork = clockwork
        self._serves = serves
        self._combine = combine
        self._groups: dict[int, Group] = {}
        self.seen: Counter[str] = Counter()

    def get(self, generation: int) -> Group | None:
        return self._groups.get(generation)

    def learn(self, assign: Assign) -> Group:
        """Learns an order; a generation is the same world for all its ranks."""
        group = self._groups.setdefault(assign.generation, Group(assign))
        if _world_of(group.assign) != _world_of(assign):
            raise Broken(f"generation {assign.generation} is two worlds: {group.assign} and {assign}")
        return group

    def build(self, trainer: Rank, assign: Assign) -> None:
        group = self.learn(assign)
        other = group.members.setdefault(assign.rank, trainer)
        if other is not trainer:
            raise Broken(f"rank {assign.rank} of generation {assign.generation}: {other.worker} and {trainer.worker}")
        self._clockwork.after(BUILD_TIMEOUT_S, partial(self._give_up_build, group, trainer))
        if len(group.members) == group.size:
            self._clockwork.after(self._clockwork.chance.uniform(0.005, 0.05), partial(self._connect, group))

    def enter(self, group: Group, rank: int, kind: str, part: Any) -> None:
        """Enters a collective; the result comes by `on_result`, None if the group broke before this rank had it."""
        trainer = group.members[rank]
        if group.is_broken:
            self._clockwork.after(self._fall_out_s(), partial(trainer.on_result, None))
            return
        number = group.entered[rank]
        group.entered[rank] += 1
        if number == len(group.collectives):
            collective = Collective(kind, self._clockwork.now_s)
            group.collectives.append(collective)
            if group.size > 1:
                self._clockwork.after(OVERDUE_S, partial(self._report_waits, group, collective))
        collective = group.collectives[number]
        if collective.kind != kind:
            raise Broken(f"ranks of generation {group.generation} meet in {collective.kind!r} and {kind!r}")
        collective.parts[rank] = part
        collective.waiting[rank] = self._clockwork.now_s
        if len(collective.parts) == group.size:
            collective.result = self._combine(group, kind, collective.parts)
            collective.is_complete = True
            self._clockwork.after(COLLECTIVE_S, partial(self._complete, group, collective))

    def cut(self, trainer: Rank, below: int, delay_s: float = 0.0) -> None:
        """Ends the rank's connections in each group below that generation."""
        for generation, group in self._groups.items():
            if generation < below and group.is_connected and trainer in group.members.values():
                self._clockwork.after(delay_s, partial(self._break, group))

    def end(self, trainer: Rank) -> None:
        """Ends the rank's process and its connections."""
        self.cut(trainer, below=max(self._groups, default=0) + 1)

    def _connect(self, group: Group) -> None:
        if group.is_connected or not all(trainer.alive for trainer in group.members.values()):
            return
        if group.size > 1 and not self._serves(group.assign.store.port):
            return
        if any(trainer.silent for trainer in group.members.values()):
            self._clockwork.after(LOOK_S, partial(self._connect, group))
            return
        group.is_connected = True
        for trainer in group.members.values():
            self._clockwork.after(self._clockwork.chance.uniform(0.0, 0.03), partial(self._built, group, trainer))

    def _built(self, group: Group, trainer: Rank) -> None:
        if group.is_broken and self._clockwork.chance.random() < 0.5:
            trainer.on_build_failed(group.generation)
        else:
            trainer.on_built(group.generation)

    def _give_up_build(self, group: Group, trainer: Rank) -> None:
        if not group.is_connected:
            group.is_broken = True
            trainer.on_build_failed(group.generation)

    def _complete(self, group: Group, collective: Collective) -> None:
        """Completes a collective; a stopped rank keeps the others waiting, unless it passed on its part before."""
        if group.is_broken:
            return
        if any(trainer.silent for trainer in group.members.values()) and self._clockwork.chance.random() < 0.5:
            self._clockwork.after(LOOK_S, partial(self._complete, group, collective))
            return
        for rank in list(collective.waiting):
            delay_s = self._clockwork.chance.uniform(0.0, 0.01)
            self._clockwork.after(delay_s, partial(self._deliver, group, collective, rank, collective.result))

    def _deliver(self, group: Group, collective: Collective, rank: int, result: Any) -> None:
        if collective.waiting.pop(rank, None) is not None:
            group.members[rank].on_result(result)

    def _break(self, group: Group) -> None:
        if group.is_broken:
            return
        group.is_broken = True
        for collective in group.collectives[-2:]:
            able = list(collective.waiting) if collective.is_complete else []
            lucky = [rank for rank in able if self._clockwork.chance.random() < 0.5]
            self.seen["sums that only some received"] += bool(lucky) and len(lucky) < group.size
            for rank in list(collective.waiting):
                result = collective.result if rank in lucky else None
                self._clockwork.after(self._fall_out_s(), partial(self._deliver, group, collective, rank, result))

    def _report_waits(self, group: Group, collective: Collective) -> None:
        if group.is_broken or not collective.waiting:
            return
        for rank, since_s in list(collective.waiting.items()):
            if self._clockwork.now_s - since_s >= OVERDUE_S:
                group.members[rank].on_waited_long()
        self._clockwork.after(LOOK_S, partial(self._report_waits, group, collective))

    def _fall_out_s(self) -> float:
        return self._clockwork.chance.uniform(0.002, 0.05)


def _world_of(assign: Assign) -> Assign:
    return replace(assign, rank=0, address="", leaves=False)
