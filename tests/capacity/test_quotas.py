"""What quotas leave for a job beside others' use, and when quotas are read again."""

from controlplane.capacity.quotas import (
    EVERY_S,
    LIMITED_S,
    Allowance,
    Refusals,
    allowances_of,
    is_due,
    left_of,
    used_by,
)
from controlplane.clouds.interface import QuotaKey
from tests.allocator.planned_stage import offer_in
from tests.allocator.stage import a_full_stage
from tests.capacity.fake_cloud import a_quota
from tests.planning.builders import ALL_GPUS, IOWA_A, a_choice, disks_of, gpus_of, needs_of

REGION = "us-central1"
DISKS = QuotaKey(REGION, "DISK_GB")
NEEDS = {a_choice(IOWA_A): needs_of(a_choice(IOWA_A))}
HERE = offer_in(IOWA_A)


def test_what_is_used_and_not_ours_is_of_others() -> None:
    assert allowances_of([a_quota(REGION, "DISK_GB", 500.0, usage=350.0)], {DISKS: 200}, {}) == {
        DISKS: Allowance(500, others=150)
    }


def test_what_system_pools_need_is_kept_for_them_whether_they_are_there_or_not() -> None:
    for usage, ours in ((0.0, 0), (50.0, 0), (50.0, 400)):
        found = allowances_of([a_quota(REGION, "DISK_GB", 500.0, usage)], {DISKS: ours}, {DISKS: 50})
        assert found == {DISKS: Allowance(500, others=50)}


def test_a_job_may_have_what_neither_strangers_nor_our_other_jobs_have() -> None:
    assert left_of({DISKS: Allowance(500, others=150)}, {DISKS: 200}) == {DISKS: 150}
    assert left_of({DISKS: Allowance(500, others=150)}, {DISKS: 900}) == {DISKS: 0}


def test_a_noticed_machine_is_ours_until_it_is_gone() -> None:
    stage = a_full_stage(HERE, wanted=3)
    stage.notices(f"{HERE.zone}-1", 25.0)
    assert used_by([stage.allocator], NEEDS) == {gpus_of(REGION): 3, disks_of(REGION): 300, ALL_GPUS: 3}


def test_quotas_are_read_again_on_request_or_after_some_minutes() -> None:
    assert is_due(0.0, is_requested=True, is_limited=False)
    assert not is_due(EVERY_S - 1, is_requested=False, is_limited=False)
    assert is_due(EVERY_S, is_requested=False, is_limited=False)


def test_quotas_that_keep_a_job_from_more_nodes_are_read_sooner() -> None:
    assert not is_due(LIMITED_S - 1, is_requested=False, is_limited=True)
    assert is_due(LIMITED_S, is_requested=False, is_limited=True)


def test_quotas_are_outdated_from_a_refusal_until_a_read_that_began_after_it_has_ended() -> None:
    reading = Refusals().read_began()
    refused = reading.refused()
    assert not refused.is_read_after_refusal
    assert refused.read_ended().is_outdated
    again = refused.read_ended().read_began()
    assert again.is_outdated and again.is_read_after_refusal
    assert not again.read_ended().is_outdated
