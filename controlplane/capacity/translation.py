"""The effects by which the cores of a job and of its allocator speak, as events of the other core."""

from controlplane.allocator.effects import Place
from controlplane.allocator.events import NodesWanted
from controlplane.catalog.money import micro_of
from controlplane.job.events import PlacementChanged
from controlplane.job.state import Want
from controlplane.planning.criteria import Criteria, criteria_left


def nodes_wanted(want: Want, file: Criteria | None, at_s: float) -> NodesWanted:
    """`file`: the criteria of a planned job, as its file says."""
    criteria = criteria_wanted(want, file) if file is not None else None
    return NodesWanted(at_s, want.number, want.nodes, want.ended, criteria, want.lost)


def criteria_wanted(want: Want, file: Criteria) -> Criteria:
    """What the file asks for, within what is left of the job's budget and deadline."""
    total, left = want.max_usd_total, want.deadline
    return criteria_left(
        file,
        spot_only=want.spot_only,
        micro_usd_total=micro_of(total) if total is not None else None,
        steps_left=left.steps if left is not None else None,
        seconds_left=left.seconds if left is not None else None,
    )


def placement_changed(place: Place, at_s: float) -> PlacementChanged:
    return PlacementChanged(at_s, place.want, place.workers, place.shortage, place.leaving, place.at_once)
