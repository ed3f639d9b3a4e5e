"""What a job's steps need: measured figures first, then those of its file, then assumptions."""

from collections.abc import Mapping

from msgspec import structs

from controlplane.planning.profiles import PEAK_TFLOPS, profile_of
from controlplane.throughput.profile import Compute, Profile
from messages.jobs import JobSpec
from messages.measured import MeasuredProfile

DIGITS = 2
LEAST_S, MOST_S, LARGEST_BATCH = 1e-9, 1e6, 10**9
"""Limits of the figures that a script reports. Larger or smaller ones would overflow the arithmetic of a plan."""
SIGNIFICANT_CHANGE = 0.1
"""The smallest relative change that causes a new plan. Measured figures vary all the time."""


def combined(spec: JobSpec, measured: MeasuredProfile | None) -> Profile:
    """The profile of a job; measured figures override those of its file.

    If the file has no figures, those of other accelerators are scaled from the newest measured one by peak TFLOPS.
    """
    known = profile_of(spec)
    if measured is None:
        return known
    seen = _seen(measured)
    others = _scaled(seen) if known.is_assumed and seen else known.compute
    return structs.replace(
        known,
        compute={**others, **seen},
        gradient_bytes=measured.gradient_bytes or known.gradient_bytes,
        global_batch=min(measured.global_batch, LARGEST_BATCH) or known.global_batch,
        is_assumed=known.is_assumed and not seen,
    )


def knows_any(measured: MeasuredProfile) -> bool:
    """Check whether steps were measured on an accelerator that the catalog has."""
    return bool(_seen(measured))


def coarse(profile: Profile) -> Profile:
    """The profile with times of two digits. Bytes and samples are exact counts."""
    return structs.replace(
        profile,
        compute={
            name: Compute(_rounded(each.seconds_per_sample), _rounded(each.seconds_per_step))
            for name, each in profile.compute.items()
        },
    )


def is_significant(reported: Profile | None, now: Profile, ranks: int) -> bool:
    """Check whether the time of one rank's share of a step, or the gradients' size, changed enough for a new plan."""
    if reported is None or reported.compute.keys() != now.compute.keys() or reported.global_batch != now.global_batch:
        return True
    share = max(1.0, now.global_batch / ranks)
    pairs: list[tuple[float, float]] = [(reported.gradient_bytes, now.gradient_bytes)]
    pairs += [(_step_s(reported.compute[name], share), _step_s(each, share)) for name, each in now.compute.items()]
    return any(abs(new - old) > SIGNIFICANT_CHANGE * old for old, new in pairs)


def _seen(measured: MeasuredProfile) -> dict[str, Compute]:
    return {
        name: Compute(min(max(each.seconds_per_sample, LEAST_S), MOST_S), min(each.seconds_per_step, MOST_S))
        for name, each in measured.compute.items()
        if name in PEAK_TFLOPS
    }


def _scaled(seen: Mapping[str, Compute]) -> dict[str, Compute]:
    """Figures of all accelerators, scaled from the newest. The fixed time of a step is the same everywhere."""
    newest, compute = list(seen.items())[-1]
    return {
        name: Compute(compute.seconds_per_sample * PEAK_TFLOPS[newest] / peak, compute.seconds_per_step)
        for name, peak in PEAK_TFLOPS.items()
    }


def _step_s(compute: Compute, samples: float) -> float:
    return compute.seconds_per_sample * samples + compute.seconds_per_step


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.{DIGITS}g}")
