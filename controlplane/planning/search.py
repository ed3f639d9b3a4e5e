"""The search for the best placement within a range of nodes.

A *prospect* is a ring and a number of nodes. Its *bound* is the best score that its placements could reach. The search
tries prospects in the order of their bounds: it places the nodes of each with the solver. It ends when the best
placement is at least as good as the bound of the next prospect: then no other placement is better. If the search
reaches its limit of programs before, its result is not proven.
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
    Score,
    SortKey,
    is_affordable,
    is_better,
    score,
    sort_key,
    sort_keys_of,
)
from controlplane.planning.tuning import Tuning
from controlplane.throughput.profile import Profile

TRIES_FOR_AN_ALTERNATIVE = 2
"""The most prospects tried for each wanted alternative. Not every prospect has a placement."""
MOST_PROSPECTS = 5000
"""The most prospects in the list: far more than one search tries. The others have worse bounds."""


class Candidate(Struct, frozen=True):
    """A placement that can train and costs no more than the cap on money an hour."""

    nodes: Nodes
    score: Score


class Found(Struct, frozen=True):
    """The result of a search."""

    best: Candidate | None = None
    others: tuple[Candidate, ...] = ()
    """Alternatives, best first: they differ from the best and each other in accelerator, regions or number of zones."""
    proven: bool = True
    """Whether no placement within the range is better than `best`, or none exists if `best` is None."""


class _Prospect(NamedTuple):
    """A ring and a number of nodes: one entry of the arrays of a bound."""

    sort_key: SortKey
    """The sort key of its bound."""
    field: Field
    bound: Bound
    entry: int
    """The index of its number of nodes in the arrays of `bound`."""


_AlternativeKey = tuple[str, tuple[str, ...], int]
"""The accelerator, the regions and the number of zones. Placements with equal keys count as one alternative."""


class Search:
    """Searches with the same criteria, profile, market and current capacity, each within its own range."""

    def __init__(
        self, criteria: Criteria, profile: Profile, market: Market, current: CurrentCapacity, tuning: Tuning
    ) -> None:
        self.criteria = criteria
        self.profile = profile
        self.market = market
        self.current = current
        self.tuning = tuning
        self.solved = 0
        """Programs that all searches together have solved."""
        self._known_rings: dict[tuple[str, ...], tuple[Ring, ...]] = {}

    def best(self, within: Range, *, alternatives: int = 0) -> Found:
        prospects = self._prospects(within)
        best, proven, limit = None, True, self.solved + self.tuning.solves
        for prospect in prospects:
            if best is not None and not is_better(prospect.sort_key, sort_key(best.score, self.criteria)):
                break
            if self.solved >= limit:
                proven = False
                break
            found, is_best = self._filled(prospect)
            proven &= is_best
            if found is not None and (best is None or self.is_better_candidate(found, best)):
                best = found
        others = self._others(prospects, best, alternatives) if best is not None else ()
        return Found(best, others, proven)

    def scored(self, nodes: Nodes) -> Candidate | None:
        """The nodes with their score; None if they are not in the market, cannot train or cost too much."""
        if any(choice not in self.market.options for choice in nodes):
            return None
        found = score(self.profile, self.market, nodes, self.tuning)
        return None if found is None or not is_affordable(self.criteria, found) else Candidate(nodes, found)

    def is_better_candidate(self, one: Candidate, other: Candidate) -> bool:
        return is_better(sort_key(one.score, self.criteria), sort_key(other.score, self.criteria))

    def _filled(self, prospect: _Prospect) -> tuple[Candidate | None, bool]:
        """The best placement of a prospect, and whether it is proven that no other of its placements is better.

        The solver may exceed the cap slightly. Then the second try lowers the cap by that much.
        """
        for spare_micro_usd in (0, TOLERANCE_MICRO_USD):
            self.solved += 1
            nodes, is_proven = fill(
                prospect.field, prospect.bound, prospect.entry, self.criteria, self.tuning, spare_micro_usd
            )
            if nodes is None:
                return None, is_proven
            candidate = self.scored(dict(sorted(nodes.items())))
            if candidate is not None:
                return candidate, is_proven
        return None, False

    def _prospects(self, within: Range) -> list[_Prospect]:
        """The prospects with the best bounds, best first. There can be many thousands, so arrays are sorted."""
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
        indices = np.concatenate([np.arange(size) for size in sizes])
        keys = sort_keys_of(
            self.criteria,
            np.concatenate([bound.step_s for _, bound in bounds]),
            np.concatenate([bound.weighed_per_hour for _, bound in bounds]),
        )
        order = np.lexsort(keys[::-1])[:MOST_PROSPECTS]
        chosen = zip(keys[:, order].T.tolist(), owners[order].tolist(), indices[order].tolist(), strict=True)
        return [_Prospect(tuple(key), bounds[owner][0], bounds[owner][1], index) for key, owner, index in chosen]

    def _rings(self, zones: tuple[str, ...]) -> tuple[Ring, ...]:
        """The rings of these zones, computed once: accelerators in the same zones have the same rings."""
        if zones not in self._known_rings:
            self._known_rings[zones] = tuple(rings(zones, self.market.links))
        return self._known_rings[zones]

    def _fields(self, within: Range) -> Iterator[Field]:
        """The options of each accelerator that the required nodes leave possible: a world has one type."""
        required = {choice.accelerator for choice, count in within.least.items() if count}
        names = sorted({choice.accelerator for choice in self.market.options})
        limits = allowed(self.market.quotas, self.current.held)
        for name in names:
            if required <= {name}:
                field = field_of(name, self.criteria, self.profile, self.market, within, limits, self.tuning)
                if field is not None:
                    yield field

    def _others(self, prospects: list[_Prospect], best: Candidate, wanted: int) -> tuple[Candidate, ...]:
        """Up to `wanted` alternatives to the best, best first.

        Each accelerator gets one try before the other prospects. Open rings get none: their zones are not known before
        they are solved.
        """
        keys, tries = {_key_of_nodes(best.nodes)}, wanted * TRIES_FOR_AN_ALTERNATIVE
        found: list[Candidate] = []
        for prospect in _other_accelerators_first([each for each in prospects if not each.bound.ring.is_open], best):
            if len(found) >= wanted or tries <= 0:
                break
            key = _key_of(prospect.field.accelerator, prospect.bound.ring.zones)
            if key not in keys:
                keys.add(key)
                tries -= 1
                other, _ = self._filled(prospect)
                if other is not None:
                    found.append(other)
        return tuple(sorted(found, key=lambda each: sort_key(each.score, self.criteria)))


def _other_accelerators_first(prospects: list[_Prospect], best: Candidate) -> Iterator[_Prospect]:
    """The best prospect of each accelerator that the best placement does not have; then all prospects."""
    seen = {choice.accelerator for choice in best.nodes}
    for prospect in prospects:
        if prospect.field.accelerator not in seen:
            seen.add(prospect.field.accelerator)
            yield prospect
    yield from prospects


def _key_of_nodes(nodes: Nodes) -> _AlternativeKey:
    return _key_of(next(iter(nodes)).accelerator, tuple({choice.zone for choice in nodes}))


def _key_of(accelerator: str, zones: tuple[str, ...]) -> _AlternativeKey:
    return accelerator, tuple(sorted({region_of(zone) for zone in zones})), len(zones)
