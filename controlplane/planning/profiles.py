"""The profile of a job's steps: from its file, or an assumed one, which is marked as assumed."""

from msgspec import structs

from controlplane.catalog.accelerators import matching
from controlplane.planning.criteria import Criteria
from controlplane.throughput.profile import Compute, Profile
from messages.criteria import Objective, StepProfile
from messages.jobs import JobSpec

PEAK_TFLOPS = {"T4": 65.0, "L4": 121.0, "V100": 125.0, "A100-40": 312.0, "A100-80": 312.0, "H100": 989.0}
"""The maker's peak in half precision without sparsity; only the ratios are used."""
ASSUMED_GRADIENT_BYTES = 1_400_000_000
"""Bytes of 350 million parameters in single precision."""
ASSUMED_SAMPLES_PER_RANK = 8
ASSUMED_SECONDS_PER_SAMPLE = 0.5
"""Seconds on an L4."""


def profile_of(spec: JobSpec) -> Profile:
    batch = spec.hyperparameters.get("global_batch")
    given = batch if isinstance(batch, int) else 0
    if spec.profile is not None:
        return _given(spec.profile, given, spec.replica)
    most = spec.workers.max * spec.workers.ranks // spec.replica
    objective = Objective.COST if spec.capacity is None else spec.capacity.objective
    return _assumed(given or most * ASSUMED_SAMPLES_PER_RANK, spec.replica, by_price=objective is Objective.COST)


def _given(reported: StepProfile, global_batch: int, replica: int) -> Profile:
    return Profile(
        compute={
            accelerator.name: Compute(time.seconds_per_sample, time.seconds_per_step)
            for name, time in reported.compute.items()
            for accelerator in matching(name)
        },
        gradient_bytes=reported.gradient_bytes,
        global_batch=max(1, global_batch),
        replica_gpus=replica,
        overlap=reported.overlap,
    )


def _assumed(global_batch: int, replica: int, *, by_price: bool) -> Profile:
    """An assumed profile; `by_price`: all accelerators are equally fast, so that the cheapest hour of GPU is best."""
    return Profile(
        compute={
            name: Compute(ASSUMED_SECONDS_PER_SAMPLE * (1.0 if by_price else PEAK_TFLOPS["L4"] / peak))
            for name, peak in PEAK_TFLOPS.items()
        },
        gradient_bytes=ASSUMED_GRADIENT_BYTES,
        global_batch=global_batch,
        replica_gpus=replica,
        is_assumed=True,
    )


def until_measured(criteria: Criteria, profile: Profile) -> Criteria:
    """The criteria without a deadline while the profile is assumed: until steps are measured, the fastest is best."""
    if not profile.is_assumed or criteria.objective is not Objective.DEADLINE:
        return criteria
    return structs.replace(criteria, objective=Objective.THROUGHPUT, min_steps_per_s=0.0)
