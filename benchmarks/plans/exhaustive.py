"""Search over all possible placements with the rules of a plan, to compare plans with."""

import math
from collections.abc import Iterator
from itertools import product

from controlplane.planning.criteria import Criteria
from controlplane.planning.market import NONE, CurrentCapacity, Market, Nodes
from controlplane.planning.option_arrays import Range
from controlplane.planning.scoring import breach, limit_of
from controlplane.planning.search import Candidate, Found, Search


def every_placement(
    criteria: Criteria, market: Market, current: CurrentCapacity, within: Range | None = None
) -> Iterator[Nodes]:
    """All placements that keep every limit but the budget."""
    limits = {choice: limit_of(market, current, choice) for choice in market.options}
    least, most = (within.least, within.most) if within is not None else (NONE, limits)
    for accelerator in sorted({choice.accelerator for choice in market.options}):
        choices = [choice for choice in market.options if choice.accelerator == accelerator]
        if any(count and choice not in choices for choice, count in least.items()):
            continue
        ranges = (range(least.get(choice, 0), min(most.get(choice, 0), criteria.max_workers) + 1) for choice in choices)
        for counts in product(*ranges):
            nodes = {choice: count for choice, count in zip(choices, counts, strict=True) if count}
            on_demand = sum(count for choice, count in nodes.items() if not choice.spot)
            shares = on_demand == math.ceil(criteria.on_demand * sum(counts) - 1e-9)
            if nodes and shares and not breach(criteria, market, current, nodes):
                yield nodes


class ExhaustiveSearch(Search):
    """Tries all placements, without bounds, rings and solver."""

    def best(self, within: Range, *, alternatives: int = 0) -> Found:
        best: Candidate | None = None
        for nodes in every_placement(self.criteria, self.market, self.current, within):
            found = self.scored(nodes)
            if found is not None and (best is None or self.is_better_candidate(found, best)):
                best = found
        return Found(best)
