"""Measured figures override those of the job's file, which override assumptions."""

from typing import Any

import pytest
from msgspec.structs import replace

from controlplane.planning.measured_profiles import coarse, combined, is_significant, knows_any
from controlplane.planning.profiles import PEAK_TFLOPS, profile_of
from controlplane.throughput.profile import Compute, Profile
from messages.criteria import StepProfile, StepTime
from messages.measured import MeasuredCompute, MeasuredProfile
from tests.specs import a_spec
from tests.throughput.builders import a_group, estimated

FILE = StepProfile(gradient_bytes=10**9, compute={"L4": StepTime(0.5), "A100-40": StepTime(0.25, 0.125)}, overlap=0.5)
PLAIN = a_spec("a-job", 4, hyperparameters={"global_batch": 64})
PROFILED = replace(PLAIN, profile=FILE)


def measured(**seconds_per_sample: float) -> MeasuredProfile:
    compute = {name.replace("_", "-"): MeasuredCompute(each, 0.0625) for name, each in seconds_per_sample.items()}
    return MeasuredProfile(gradient_bytes=4096, global_batch=32, step_s=1.0, waiting=0.25, compute=compute)


def test_without_a_measurement_all_is_as_the_file_or_the_assumption_has_it() -> None:
    for spec in (PROFILED, PLAIN):
        assert combined(spec, None) == profile_of(spec)


def test_what_was_measured_wins_over_the_file_and_the_file_stands_for_others() -> None:
    profile = combined(PROFILED, measured(L4=0.75))
    assert not profile.is_assumed
    assert profile.compute == {"L4": Compute(0.75, 0.0625), "A100-40": Compute(0.25, 0.125)}
    assert (profile.gradient_bytes, profile.global_batch, profile.overlap) == (4096, 32, 0.5)


def test_an_accelerator_that_the_file_does_not_name_is_used_once_it_was_seen() -> None:
    profile = combined(PROFILED, measured(T4=2.0))
    assert profile.compute.keys() == {"L4", "A100-40", "T4"}


def test_without_a_file_others_are_scaled_from_what_was_seen_last() -> None:
    profile = combined(PLAIN, measured(T4=9.0, L4=0.75))
    assert not profile.is_assumed
    assert profile.compute["L4"] == Compute(0.75, 0.0625)
    assert profile.compute["T4"] == Compute(9.0, 0.0625)
    assert profile.compute["H100"].seconds_per_sample == pytest.approx(0.75 * PEAK_TFLOPS["L4"] / PEAK_TFLOPS["H100"])
    assert profile.compute.keys() == PEAK_TFLOPS.keys()


def test_an_accelerator_that_nobody_knows_teaches_bytes_only() -> None:
    unknown = MeasuredProfile(4096, 32, 1.0, 0.25, {"": MeasuredCompute(0.5, 0.0)})
    profile = combined(PLAIN, unknown)
    assert (profile.is_assumed, knows_any(unknown), knows_any(measured(L4=0.5))) == (True, False, True)
    assert profile.gradient_bytes == 4096
    assert profile.compute == profile_of(PLAIN).compute


@pytest.mark.parametrize("seconds", [1e-320, 1e9])
@pytest.mark.parametrize("batch", [1, 2**53])
def test_whatever_a_script_tells_of_itself_there_is_an_estimate(seconds: float, batch: int) -> None:
    reported = MeasuredProfile(10**15, batch, 1.0, 0.5, {"L4": MeasuredCompute(seconds, seconds)})
    profile = coarse(combined(PLAIN, reported))
    groups = (a_group("us-central1-a"), a_group("europe-west4-a")) if batch > 1 else (a_group(),)
    assert estimated(profile, *groups).micro_usd_per_1000_steps > 0


def a_profile(**changes: Any) -> Profile:
    given: dict[str, Any] = {"compute": {"L4": Compute(0.1, 0.001)}, "gradient_bytes": 4096, "global_batch": 32}
    return Profile(**{**given, **changes})


def test_times_are_told_with_two_digits_and_bytes_as_they_are() -> None:
    found = coarse(a_profile(compute={"L4": Compute(0.012345, 1.234567)}))
    assert found == a_profile(compute={"L4": Compute(0.012, 1.2)})


def test_noise_is_no_news() -> None:
    reported = a_profile()
    assert is_significant(None, reported, 4)
    assert not is_significant(reported, reported, 4)
    assert not is_significant(reported, a_profile(compute={"L4": Compute(0.109, 0.001)}), 4)
    assert not is_significant(reported, a_profile(compute={"L4": Compute(0.1, 0.03)}), 4), "next to what 8 samples take"
    assert is_significant(reported, a_profile(compute={"L4": Compute(0.112, 0.001)}), 4)
    assert is_significant(reported, a_profile(compute={"L4": Compute(0.088, 0.001)}), 4)
    assert is_significant(reported, a_profile(gradient_bytes=8192), 4)
    assert is_significant(reported, a_profile(global_batch=64), 4)
    assert is_significant(reported, a_profile(compute={**reported.compute, "T4": Compute(0.3)}), 4)
