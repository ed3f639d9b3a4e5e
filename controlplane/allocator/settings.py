"""How long an allocator waits, and how often it tries. Fleets and jobs change few of these."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    stockout_s: float = 30.0
    """How long a zone that had no machines is left alone; doubles with each time in a row."""
    stockout_max_s: float = 900.0
    quota_s: float = 900.0
    """The same after a quota refusal, or where a person must act: an early retry does not help."""
    quota_max_s: float = 14_400.0
    wary_s: float = 900.0
    """How long what runs is not given up for machines of a zone that had none."""
    loss_cooldown_s: float = 120.0
    """How long a zone that took a node, or did not answer, comes last."""
    retry_s: float = 1.0
    """First pause after an operation or a listing that could not be done just now; doubles."""
    retry_max_s: float = 30.0
    unready_s: float = 10.0
    """Seconds until a node that was ready and is not any more is replaced."""
    unready_timeout_s: float = 900.0
    """Seconds for which a replaced node is kept: it may be ready again, and the cloud repairs it after about 600 s."""
    linger_s: float = 60.0
    """Seconds before a lost node that still exists is removed by name: its group may not know of the loss."""
    owed_s: float = 5.0
    """How long a lost slot that cannot be given up yet, since its pool is busy or its region away, still counts."""
    arrival_s: float = 600.0
    """Seconds for which a slot without an operation is empty before it counts as unfillable."""
    recent_s: float = 300.0
    """Seconds for which a refusal of a node counts as a sign that its zone has none."""
    busy_tries: int = 3
    """Failed changes of a pool in a row after which nodes are requested elsewhere between two retries."""
    unexplained_tries: int = 5
    """Failed changes in a row, the last without a known reason, after which the offer counts as refused."""
    hang_s: float = 120.0
    """How long a pool that gets no nodes and cannot be lowered either keeps others from being raised."""
    fresh_s: float = 15.0
    """Older sights of a cluster's nodes do not tell which slots of a pool are empty."""
    doubt_s: float = 2.0
    """A request whose answer was lost may still arrive so much later: only a listing after that tells what it did."""
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
    """Seconds after the last plan at which a new one is requested even while inputs still change."""
    plan_timeout_s: float = 30.0
    """Seconds after which a missing plan is requested again."""
    release_s: float = 90.0
    """Seconds after which the nodes of a job that wants none are removed even if it has not released them."""
    idle_timeout_s: float = 600.0
    """Seconds after which a planned job gives back a node that it does not use, or hardly uses."""
    notice_idle_s: float = 120.0
    """A noticed node that the job has left is removed at once if its notice leaves more than this."""
    rest_max_s: float = 3600.0
    """Where such nodes were too few to run with, none are asked for after for as long; doubles with each time after."""
    regrow_after_s: float = 1800.0
    """How long no more nodes are asked for after one went that was used too little; doubles with each time after."""
    regrow_after_max_s: float = 86_400.0

    start_give_back_s: float = 300.0
    """Seconds that a node is kept on which the job's worker cannot start: until then a person may repair the cause."""
    start_retry_s: float = 600.0
    """Seconds until a cluster in which workers could not start is tried again; doubles with each time."""
    start_retry_max_s: float = 14_400.0
    controller_block_s: float = 120.0
    """Seconds without requests in a cluster after the last report that its controller fails."""
