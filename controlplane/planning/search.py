"""The search for the best placement within a range: tries rings and numbers of nodes in the order of their bounds.

No prospect is better than its bound. So the search ends when a found placement is at least as good as the next bound:
then it is the best of all.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from controlplane.catalog.places import region_of
from controlplane.planning.bounds import Bound, bound_of
from controlplane.planning.criteria import Criteria
from controlplane.planning.filling import TOLERANCE_MICRO_USD, fill
from controlplane.planning.market import CurrentCapacity, Market, Nodes
from controlplane.planning.option_arrays import Field, Range, field_of
from controlplane.planning.quotas import allowed
from controlplane.planning.rings import Ring, rings
from controlplane.planning.scoring import (
    Rank,
    Score,
    is_affordable,
    is_better,
    rank,
    ranks_of,
    score,
)
from controlplane.planning.tuning import Tuning
from controlplane.throughput.profile import Profile

TRIES_FOR_AN_ALTERNATIVE = 2
MOST_PROSPECTS = 5000
"""The most prospects that are kept: more than are ever tried, and the rest have worse bounds."""


class Candidate(Struct, frozen=True):
    nodes: Nodes
    score: Score


class Found(Struct, frozen=True):
    best: Candidate | None = None
    others: tuple[Candidate, ...] = ()
    """The best with other accelerators or regions, best first."""
    proven: bool = True
    """No placement within the range is better."""


class _Prospect(NamedTuple):
    promise: Rank
    field: Field
    bound: Bound
    place: int


_Kind = tuple[str, tuple[str, ...], int]
"""What makes an alternative: the accelerator, the regions and the number of zones."""


class Search:
    """A search with fixed inputs: criteria, profile, market and current capacity."""

    def __init__(
        self, criteria: Criteria, profile: Profile, market: Market, current: CurrentCapacity, tuning: Tuning
    ) -> None:
        self.criteria = criteria
        self.profile = profile
        self.market = market
        self.current = current
        self.tuning = tuning
        self.solved = 0
        self._known_rings: dict[tuple[str, ...], tuple[Ring, ...]] = {}

    def best(self, within: Range, *, alternatives: int = 0) -> Found:
        prospects = self._prospects(within)
        best, proven, limit = None, True, self.solved + self.tuning.solves
        for prospect in prospects:
            if best is not None and not is_better(prospect.promise, rank(best.score, self.criteria)):
                break
            if self.solved >= limit:
                proven = False
                break
            found, is_best = self._filled(prospect)
            proven &= is_best
            if found is not None and (best is None or self.is_better(found, best)):
                best = found
        others = self._others(prospects, best, alternatives) if best is not None else ()
        return Found(best, others, proven)

    def scored(self, nodes: Nodes) -> Candidate | None:
        if any(choice not in self.market.options for choice in nodes):
            return None
        found = score(self.profile, self.market, nodes, self.tuning)
        return None if found is None or not is_affordable(self.criteria, found) else Candidate(nodes, found)

    def is_better(self, one: Candidate, other: Candidate) -> bool:
        return is_better(rank(one.score, self.criteria), rank(other.score, self.criteria))

    def _filled(self, prospect: _Prospect) -> tuple[Candidate | None, bool]:
        for spare_micro_usd in (0, TOLERANCE_MICRO_USD):
            self.solved += 1
            found = fill(prospect.field, prospect.bound, prospect.place, self.criteria, self.tuning, spare_micro_usd)
            if found is None:
                break
            candidate = self.scored(dict(sorted(found[0].items())))
            if candidate is not None:
                return candidate, found[1]
        return None, True

    def _prospects(self, within: Range) -> list[_Prospect]:
        """Prospects by bound, best first; sorted as arrays, because they are many thousands."""
        bounds = [
            (field, bound)
            for field in self._fields(within)
            for ring in self._rings(tuple(field.zones))
            if (bound := bound_of(field, ring, self.criteria, self.tuning)) is not None
        ]
        if not bounds:
            return []
        sizes = [len(bound.nodes) for _, bound in bounds]
        owners = np.repeat(np.arange(len(bounds)), sizes)
        places = np.concatenate([np.arange(size) for size in sizes])
        promises = ranks_of(
            self.criteria,
            np.concatenate([bound.step_s for _, bound in bounds]),
            np.concatenate([bound.weighed_per_hour for _, bound in bounds]),
        )
        order = np.lexsort(promises[::-1])[:MOST_PROSPECTS]
        ranks = promises[:, order].T.tolist()
        chosen = zip(ranks, owners[order].tolist(), places[order].tolist(), strict=True)
        return [
            _Prospect(tuple(promise), bounds[owner][0], bounds[owner][1], place) for promise, owner, place in chosen
        ]

    def _rings(self, zones: tuple[str, ...]) -> tuple[Ring, ...]:
        """The rings of these zones; accelerators in the same zones share them."""
        if zones not in self._known_rings:
            self._known_rings[zones] = tuple(rings(zones, self.market.links))
        return self._known_rings[zones]

    def _fields(self, within: Range) -> Iterator[Field]:
        held = {choice.accelerator for choice, count in within.least.items() if count}
        names = sorted({choice.accelerator for choice in self.market.options})
        limits = allowed(self.market.quotas, self.current.held)
        for name in names:
            if held <= {name}:
                field = field_of(name, self.criteria, self.profile, self.market, within, limits, self.tuning)
                if field is not None:
                    yield field

    def _others(self, prospects: list[_Prospect], best: Candidate, wanted: int) -> tuple[Candidate, ...]:
        """Alternatives of kinds that differ from the best and each other; other accelerators first."""
        kinds, tries = {_kind(best.nodes)}, wanted * TRIES_FOR_AN_ALTERNATIVE
        found: list[Candidate] = []
        for prospect in _varied([each for each in prospects if not each.bound.ring.is_open], best):
            if len(found) >= wanted or tries <= 0:
                break
            kind = _kind_of(prospect.field.accelerator, prospect.bound.ring.zones)
            if kind not in kinds:
                kinds.add(kind)
                tries -= 1
                other, _ = self._filled(prospect)
                found += () if other is None else (other,)
        return tuple(sorted(found, key=lambda each: rank(each.score, self.criteria)))


def _varied(prospects: list[_Prospect], best: Candidate) -> Iterator[_Prospect]:
    shown = {choice.accelerator for choice in best.nodes}
    for prospect in prospects:
        if prospect.field.accelerator not in shown:
            shown.add(prospect.field.accelerator)
            yield prospect
    yield from prospects


def _kind(nodes: Nodes) -> _Kind:
    zones = tuple(sorted({choice.zone for choice in nodes}))
    return _kind_of(next(iter(nodes)).accelerator, zones)


def _kind_of(accelerator: str, zones: tuple[str, ...]) -> _Kind:
    return accelerator, tuple(sorted({region_of(zone) for zone in zones})), len(zones)
