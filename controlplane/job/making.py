"""The assignment that makes an arrangement of workers a world."""

from controlplane.job.ranks import Arrangement, shares
from controlplane.job.state import Job
from messages.ids import Generation
from messages.worlds import Assignment, HotWorld, Hyperparameters, StoreAddress


def assignment_of(
    job: Job, generation: Generation, world: Arrangement, store: StoreAddress, why: str, hot: HotWorld | None
) -> Assignment:
    spec = job.spec
    taken = {member.worker for member in world.members}
    return Assignment(
        job=job.name,
        generation=generation,
        world_size=world.world_size,
        members=world.members,
        store=store,
        launch=spec.launch,
        stop_grace_s=spec.timeouts.stop_grace_s,
        why=why,
        spares=tuple(sorted(worker for worker in job.workers if worker not in taken)),
        hyperparameters=hyperparameters(job, world.world_size),
        restart_count=job.record.failures,
        max_restarts=spec.failures.max,
        hot=hot,
    )


def hyperparameters(job: Job, world_size: int) -> Hyperparameters:
    """The global batch does not depend on the world; each rank's share of it does."""
    given = dict(job.spec.hyperparameters)
    batch = given.pop("global_batch", None)
    rate = given.pop("learning_rate", None)
    return Hyperparameters(
        global_batch=batch if isinstance(batch, int) else None,
        shares=shares(batch, world_size) if isinstance(batch, int) else (),
        learning_rate=float(rate) if rate is not None else None,
        given=given,
    )
