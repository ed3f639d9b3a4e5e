"""Waits and retries of an allocator. Fleets and jobs change few of these."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    stockout_s: float = 30.0
    """Seconds without requests in a zone that had no machines; doubles with each refusal in a row."""
    stockout_max_s: float = 900.0
    quota_s: float = 900.0
    """The same after a quota refusal, or if a person must act: an early retry does not help."""
    quota_max_s: float = 14_400.0
    wary_s: float = 900.0
    """Seconds after a shortage in which running nodes do not move to the zone."""
    loss_cooldown_s: float = 120.0
    """Cooldown: seconds for which a zone that preempted a node, or did not answer, comes last."""
    retry_s: float = 1.0
    """First pause after an operation or a listing that failed for now; doubles."""
    retry_max_s: float = 30.0
    unready_s: float = 10.0
    """Seconds until a node that became unready is replaced."""
    unready_timeout_s: float = 900.0
    """Seconds for which a replaced node is kept: it may recover, and the cloud repairs it after about 600 s."""
    linger_s: float = 60.0
    """Seconds before a lost node that still exists is removed by name: its group may not know of the loss."""
    owed_s: float = 5.0
    """Seconds for which a lost slot still counts that cannot be removed, because its pool is busy or unreachable."""
    arrival_s: float = 600.0
    """Seconds for which a slot without an operation is empty before it counts as unfillable."""
    recent_s: float = 300.0
    """Maximum age in seconds of a listed refusal that closes the zone."""
    busy_tries: int = 3
    """Failed changes of a pool in a row after which nodes are requested elsewhere between two retries."""
    unexplained_tries: int = 5
    """Failed changes in a row, the last without a known reason, after which the offer counts as refused."""
    hang_s: float = 120.0
    """Seconds for which a pool that gets no nodes and cannot be lowered keeps other pools from being raised."""
    fresh_s: float = 15.0
    """Maximum age in seconds of an observation that shows which slots of a pool are empty."""
    doubt_s: float = 2.0
    """Seconds in which a request with a lost answer may still arrive; only a later listing shows what it did."""
    refill_s: float = 3.0
    """Seconds after a loss, and again at twice that, at which the cloud is checked for filling the slot."""
    relist_s: float = 30.0
    relist_updating_s: float = 10.0
    """The same while the cloud upgrades or repairs nodes."""
    list_timeout_s: float = 60.0
    quiet_s: float = 10.0
    """Seconds after the last operation, or the start, before a listing proves that an ended job has nothing left."""
    plan_settle_s: float = 0.5
    """Seconds without a change of its inputs before a plan is requested: a wave of losses is one plan."""
    plan_every_s: float = 60.0
    """Seconds from the first change since the last plan to the next plan, if the inputs never settle."""
    plan_timeout_s: float = 30.0
    """Seconds after which a missing plan is requested again."""
    release_s: float = 90.0
    """Seconds after which the nodes of a job that wants none are removed even if it has not released them."""
    idle_timeout_s: float = 600.0
    """Seconds after which a planned job gives back a node that it does not use, or hardly uses."""
    notice_idle_s: float = 120.0
    """A noticed node that the job has left is removed at once if its notice leaves more than this."""
    rest_max_s: float = 3600.0
    """Maximum seconds without requests after too few nodes came to run with; the pause starts at `idle_timeout_s`."""
    regrow_after_s: float = 1800.0
    """Seconds without requests after a node was dismissed for low use; doubles with each dismissal."""
    regrow_after_max_s: float = 86_400.0

    start_give_back_s: float = 300.0
    """Seconds for which a node is kept whose worker cannot start: a person may repair the cause meanwhile."""
    start_retry_s: float = 600.0
    """Seconds until a cluster in which workers could not start is tried again; doubles with each time."""
    start_retry_max_s: float = 14_400.0
    controller_block_s: float = 120.0
    """Seconds without requests in a cluster after the last report that its controller fails."""
