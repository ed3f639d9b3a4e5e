"""The answer to a loss until a plan is made of it: the greedy step, which asks no solver.

Where a machine was just taken another is not to be counted on, nor where an operation is under way: other zones come
first. Unless the plan would only move it back: it leaves what runs for no gain below its threshold, which is the
measure here too.
"""

from collections.abc import Mapping

from msgspec import structs

from controlplane.allocator.demand import Basis
from controlplane.planning.greedy import greedy
from controlplane.planning.market import Choice, Nodes, Present
from controlplane.planning.scoring import gain, score
from controlplane.planning.tuning import Tuning
from controlplane.throughput.profile import Profile

_TUNING = Tuning()


def stopgap(basis: Basis, profile: Profile, wanted: int, doubtful: frozenset[Choice]) -> Nodes:
    """While there is something that the market does not have, nothing is added: its price is not known."""
    there = {choice: count for choice, count in basis.present.committed().items() if choice in basis.market.options}
    if sum(there.values()) >= wanted or len(there) < len(basis.present.choices()):
        return there
    anywhere = _greedy(basis, profile, basis.present, wanted)
    added = {choice for choice, count in anywhere.items() if count > there.get(choice, 0)}
    if not added & doubtful:
        return anywhere
    avoiding = structs.replace(basis.present, stocked_out=basis.present.stocked_out | doubtful)
    sure = _greedy(basis, profile, avoiding, wanted)
    sure_first = _greedy(basis, profile, structs.replace(basis.present, in_flight=_beside(sure, basis)), wanted)
    return anywhere if _would_be_moved(basis, profile, sure_first, anywhere) else sure_first


def _greedy(basis: Basis, profile: Profile, present: Present, wanted: int) -> Nodes:
    return greedy(basis.criteria, profile, basis.market, present, wanted, _TUNING)


def _beside(nodes: Nodes, basis: Basis) -> Mapping[Choice, int]:
    held = basis.present.held
    return {choice: count - held.get(choice, 0) for choice, count in nodes.items() if count > held.get(choice, 0)}


def _would_be_moved(basis: Basis, profile: Profile, nodes: Nodes, better: Nodes) -> bool:
    here = score(profile, basis.market, nodes, _TUNING)
    there = score(profile, basis.market, better, _TUNING)
    return here is not None and there is not None and gain(there, here, basis.criteria) >= _TUNING.threshold
