"""Builds the assignment for an arrangement of workers."""

from msgspec.structs import replace

from controlplane.job.ranks import Arrangement, shares
from controlplane.job.state import Job
from messages.ids import Generation
from messages.jobs import Launch
from messages.worlds import Assignment, Hyperparameters, LiveWorld, StoreAddress


def assignment_of(
    job: Job, generation: Generation, world: Arrangement, store: StoreAddress, why: str, live: LiveWorld | None
) -> Assignment:
    spec = job.spec
    # Live trainers were started with the last world in which all trainers were new.
    restarts = job.record.starts if live is None else max(0, job.record.starts - 1)
    return Assignment(
        job=job.name,
        generation=generation,
        world_size=world.world_size,
        members=world.members,
        store=store,
        launch=_launch(job, restarts),
        stop_grace_s=spec.timeouts.stop_grace_s,
        why=why,
        hyperparameters=hyperparameters(job, world.world_size),
        restart_count=job.record.failures,
        max_restarts=spec.failures.max,
        restarts=restarts,
        live=live,
    )


def _launch(job: Job, restarts: int) -> Launch:
    """The launch, with `restart_args` if it is a restart and, where known, a checkpoint exists."""
    launch = job.spec.launch
    can_resume = launch.checkpoint_path is None or job.record.checkpointed
    if not restarts or not can_resume or not launch.restart_args:
        return launch
    return replace(launch, args=(*launch.args, *launch.restart_args))


def hyperparameters(job: Job, world_size: int) -> Hyperparameters:
    """Hyperparameters of a world. Its size changes the share of each rank, not the global batch."""
    given = dict(job.spec.hyperparameters)
    batch = given.pop("global_batch", None)
    rate = given.pop("learning_rate", None)
    return Hyperparameters(
        global_batch=batch if isinstance(batch, int) else None,
        shares=shares(batch, world_size) if isinstance(batch, int) else (),
        learning_rate=float(rate) if rate is not None else None,
        given=given,
    )
