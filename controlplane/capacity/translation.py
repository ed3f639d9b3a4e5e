"""Translation of effects of a job's core into events of its allocator, and of effects of the allocator back."""

from controlplane.allocator.effects import Place
from controlplane.allocator.events import NodesWanted
from controlplane.catalog.money import micro_of
from controlplane.job.events import PlacementChanged
from controlplane.job.state import Want
from controlplane.planning.criteria import Criteria, criteria_left


def nodes_wanted(want: Want, file: Criteria | None, at_s: float) -> NodesWanted:
    """`file`: the criteria of a planned job's file; None for other jobs."""
    criteria = criteria_wanted(want, file) if file is not None else None
    return NodesWanted(at_s, want.number, want.nodes, want.ended, criteria, want.lost)


def criteria_wanted(want: Want, file: Criteria) -> Criteria:
    """The criteria of the file within what is left of the job's budget and deadline."""
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
