"""From the reports of trainers to the profile of a step."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.throughput.measuring import ENOUGH_STEPS, WORKERS_AT_MOST, Measuring, WorkerPlace
from controlplane.throughput.use import FRESH_S, NodeUse
from messages.ids import ClusterName, WorkerId
from messages.measured import MeasuredProfile, StepsMeasured

L4 = "L4"
US = ClusterName("us")


def reported(steps: int = 10, *, sample_s: float = 0.01, waits: float = 0.2, rest: float = 0.1) -> StepsMeasured:
    """Steps of one second whose samples fill the time that is left."""
    computed_s = 1.0 - waits - rest
    return StepsMeasured(
        steps=steps,
        samples=computed_s / sample_s,
        seconds=1.0,
        computed_s=computed_s,
        waited_s=waits,
        gradient_bytes=4096,
        global_batch=256,
    )


def hear(measuring: Measuring, worker: str, *ranks: StepsMeasured | None, on: str = L4, at_s: float = 0.0) -> None:
    measuring.hear(WorkerId(worker), WorkerPlace(US, f"node-of-{worker}", on), ranks, at_s)


def the_profile(measuring: Measuring, now_s: float = 0.0) -> MeasuredProfile:
    found = measuring.profile(now_s)
    assert found is not None
    return found


def test_nothing_is_said_before_anybody_has_told_anything() -> None:
    measuring = Measuring()
    assert (measuring.profile(0.0), measuring.use(0.0)) == (None, ())
    hear(measuring, "a", None)
    assert measuring.profile(0.0) is None


def test_a_step_s_parts_become_a_profile() -> None:
    measuring = Measuring()
    hear(measuring, "a", reported(20, sample_s=0.01, waits=0.2, rest=0.1))
    profile = the_profile(measuring)
    assert (profile.gradient_bytes, profile.global_batch) == (4096, 256)
    assert (profile.step_s, profile.waiting) == pytest.approx((1.0, 0.2))
    assert profile.compute[L4].seconds_per_sample == pytest.approx(0.01)
    assert profile.compute[L4].seconds_per_step == pytest.approx(0.1)


def test_too_few_steps_tell_bytes_and_nothing_of_time() -> None:
    measuring = Measuring()
    hear(measuring, "a", reported(ENOUGH_STEPS - 1))
    assert the_profile(measuring) == MeasuredProfile(4096, 256)
    assert measuring.use(0.0) == ()
    hear(measuring, "a", reported(ENOUGH_STEPS))
    assert the_profile(measuring).compute.keys() == {L4}


def test_one_slow_machine_among_others_changes_nothing() -> None:
    measuring = Measuring()
    for worker in ("a", "b", "c"):
        hear(measuring, worker, reported(sample_s=0.01))
    hear(measuring, "slow", reported(sample_s=0.5))
    assert the_profile(measuring).compute[L4].seconds_per_sample == pytest.approx(0.01, rel=0.01)
    two = Measuring()
    hear(two, "a", reported(sample_s=0.01))
    hear(two, "slow", reported(sample_s=0.5))
    assert the_profile(two).compute[L4].seconds_per_sample == pytest.approx(0.01, rel=0.01)


def test_the_newest_report_of_a_worker_is_all_that_counts_of_it() -> None:
    measuring, later = Measuring(), Measuring()
    for second in range(5):
        hear(measuring, "a", reported(10 + second, sample_s=0.05), at_s=second)
    for each in (measuring, later):
        hear(each, "a", reported(16, sample_s=0.02), at_s=5.0)
    assert the_profile(measuring, 5.0) == the_profile(later, 5.0), "who came late knows as much"


def test_accelerators_are_told_apart_and_the_one_that_was_left_is_remembered() -> None:
    measuring = Measuring()
    hear(measuring, "a", reported(sample_s=0.04))
    later_s = 10 * FRESH_S
    hear(measuring, "b", reported(sample_s=0.01), on="A100-40", at_s=later_s)
    compute = the_profile(measuring, later_s).compute
    assert list(compute) == [L4, "A100-40"]
    assert compute[L4].seconds_per_sample == pytest.approx(0.04, rel=0.01)
    hear(measuring, "a", reported(sample_s=0.04), at_s=later_s + 10 * FRESH_S)
    assert list(the_profile(measuring, later_s + 10 * FRESH_S).compute) == ["A100-40", L4], "the newest last"


def test_looking_at_a_profile_changes_nothing() -> None:
    seen, unseen = Measuring(), Measuring()
    for second, accelerator in enumerate(("", L4, "A100-40", L4)):
        for each in (seen, unseen):
            hear(each, f"w{second}", reported(sample_s=0.01 * (second + 1)), on=accelerator, at_s=second * FRESH_S)
        for later_s in (0.0, 5 * FRESH_S):
            the_profile(seen, second * FRESH_S + later_s)
    assert the_profile(seen, 9 * FRESH_S) == the_profile(unseen, 9 * FRESH_S)
    assert list(the_profile(seen, 3 * FRESH_S).compute) == list(the_profile(unseen, 3 * FRESH_S).compute)


def test_an_accelerator_is_remembered_when_its_last_worker_is_gone() -> None:
    measuring = Measuring()
    hear(measuring, "a", reported(sample_s=0.04))
    hear(measuring, "b", reported(sample_s=0.01), on="A100-40", at_s=1.0)
    measuring.forget_all_but({WorkerId("b")})
    compute = the_profile(measuring, 1.0).compute
    assert list(compute) == [L4, "A100-40"]
    assert compute[L4].seconds_per_sample == pytest.approx(0.04, rel=0.01)


def test_who_is_not_heard_any_more_says_nothing_until_nobody_is() -> None:
    measuring = Measuring()
    hear(measuring, "gone", reported(sample_s=0.5), at_s=0.0)
    hear(measuring, "a", reported(sample_s=0.01), at_s=2 * FRESH_S)
    assert [each.node for each in measuring.use(2 * FRESH_S)] == ["node-of-a"]
    assert the_profile(measuring, 2 * FRESH_S).step_s == pytest.approx(1.0)
    ended = the_profile(measuring, 100 * FRESH_S)
    assert ended.step_s == pytest.approx(1.0)
    assert ended.compute.keys() == {L4}
    assert measuring.use(100 * FRESH_S) == ()


def test_use_is_what_the_ranks_of_a_node_computed_of_what_they_computed_and_waited() -> None:
    measuring = Measuring()
    hear(measuring, "a", reported(waits=0.0, rest=0.2), reported(waits=0.8, rest=0.2), at_s=1.0)
    hear(measuring, "b", reported(waits=0.1, rest=0.0), at_s=1.0)
    shares = {each.node: each.share for each in measuring.use(1.0)}
    assert shares == pytest.approx({"node-of-a": 0.5, "node-of-b": 0.9})


def test_use_is_told_with_how_long_ago_it_was_heard_and_how_long_that_holds() -> None:
    measuring = Measuring()
    hear(measuring, "a", reported(waits=0.5, rest=0.0), at_s=1.0)
    assert measuring.use(31.0) == (NodeUse(US, "node-of-a", 0.5, silent_s=30.0, fresh_s=FRESH_S),)
    slow = StepsMeasured(steps=10, samples=1.0, seconds=100.0, computed_s=50.0, waited_s=50.0)
    hear(measuring, "a", slow, at_s=40.0)
    assert measuring.use(40.0) == (NodeUse(US, "node-of-a", 0.5, fresh_s=1000.0),)


def test_nodes_of_one_name_in_two_clusters_are_two_and_the_newest_worker_of_each_counts() -> None:
    measuring = Measuring()
    for worker, cluster, waits in (("old", "us", 0.1), ("far", "eu", 0.3), ("new", "us", 0.5)):
        measuring.hear(
            WorkerId(worker), WorkerPlace(ClusterName(cluster), "node"), [reported(waits=waits, rest=0.0)], 0.0
        )
    shares = {each.cluster: each.share for each in measuring.use(0.0)}
    assert shares == pytest.approx({"us": 0.5, "eu": 0.7})


def test_of_workers_that_are_gone_nothing_is_kept() -> None:
    measuring = Measuring()
    for worker in ("a", "gone"):
        hear(measuring, worker, reported())
    measuring.forget_all_but({WorkerId("a")})
    assert [each.node for each in measuring.use(0.0)] == ["node-of-a"]


def test_several_ranks_of_a_worker_are_one_measurement() -> None:
    measuring = Measuring()
    hear(measuring, "a", reported(ENOUGH_STEPS // 2), reported(ENOUGH_STEPS // 2))
    assert the_profile(measuring).step_s == 0.0, "each of them has done few steps"
    hear(measuring, "a", reported(sample_s=0.01), reported(sample_s=0.03), None)
    profile = the_profile(measuring)
    assert profile.compute[L4].seconds_per_sample == pytest.approx(0.015), "1.4 s for 70 and 23.3 samples"
    assert profile.step_s == pytest.approx(1.0)


def test_where_a_worker_is_may_be_known_later() -> None:
    measuring = Measuring()
    hear(measuring, "a", reported(), on="")
    assert list(the_profile(measuring).compute) == [""]
    hear(measuring, "a", reported())
    assert list(the_profile(measuring).compute) == [L4]


def test_what_is_kept_is_bounded() -> None:
    measuring = Measuring()
    for number in range(WORKERS_AT_MOST + 3):
        hear(measuring, f"w{number}", reported())
    assert len(measuring.use(0.0)) == WORKERS_AT_MOST


COUNTS = st.integers(0, 2**53)
SECONDS = st.floats(0, 1e9)
ODD = st.builds(
    StepsMeasured,
    steps=COUNTS,
    samples=st.floats(0, 2**53),
    seconds=SECONDS,
    computed_s=SECONDS,
    waited_s=SECONDS,
    gradient_bytes=st.integers(0, 10**15),
    global_batch=COUNTS,
)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.lists(ODD, max_size=3), SECONDS), max_size=12))
def test_whatever_is_told_figures_are_figures(heard: list[tuple[str, list[StepsMeasured], float]]) -> None:
    measuring = Measuring()
    for worker, ranks, at_s in heard:
        hear(measuring, worker, *ranks, at_s=at_s)
        profile = measuring.profile(at_s)
        if profile is not None:
            assert 0 <= profile.waiting <= 1
            figures = [profile.step_s]
            for each in profile.compute.values():
                figures += [each.seconds_per_sample, each.seconds_per_step]
            assert all(math.isfinite(figure) and figure >= 0 for figure in figures)
        assert all(0 <= each.share <= 1 for each in measuring.use(at_s))
