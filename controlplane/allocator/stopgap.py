"""The answer to a loss until a plan is made of it: the greedy step, which asks no solver.

Where a machine was just taken another is not to be counted on, nor where an operation is under way: other zones come
first, and if there are none, the one where it is longest ago. Unless the plan would only move it back: it leaves what
runs for no gain below its threshold, which is the measure here too.
"""

from collections.abc import Mapping

from controlplane.allocator.demand import Basis
from controlplane.catalog.kinds import MachineKind
from controlplane.planning.greedy import greedy
from controlplane.planning.market import NONE, Nodes
from controlplane.planning.profiles import until_measured
from controlplane.planning.scoring import gain, score
from controlplane.planning.tuning import Tuning

_TUNING = Tuning()


def stopgap(basis: Basis, wanted: int, doubts: Mapping[MachineKind, float], lost: str = "") -> Nodes:
    """While there is something that the market does not have, nothing is added: its price is not known.

    `lost`: the accelerator that there was, where nothing is left.
    """
    there = {choice: count for choice, count in basis.present.committed().items() if choice in basis.market.options}
    if sum(there.values()) >= wanted or len(there) < len(basis.present.choices()):
        return there
    anywhere = _greedy(basis, wanted, NONE, lost)
    added = {choice for choice, count in anywhere.items() if count > there.get(choice, 0)}
    if not added & doubts.keys():
        return anywhere
    surest = _greedy(basis, wanted, doubts, lost)
    return anywhere if _would_be_moved(basis, surest, anywhere) else surest


def _greedy(basis: Basis, wanted: int, last: Mapping[MachineKind, float], lost: str) -> Nodes:
    return greedy(basis.criteria, basis.profile, basis.market, basis.present, wanted, _TUNING, last, lost)


def _would_be_moved(basis: Basis, nodes: Nodes, better: Nodes) -> bool:
    here = score(basis.profile, basis.market, nodes, _TUNING)
    there = score(basis.profile, basis.market, better, _TUNING)
    criteria = until_measured(basis.criteria, basis.profile)
    return here is not None and there is not None and gain(there, here, criteria) >= _TUNING.threshold
