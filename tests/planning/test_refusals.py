"""Criteria that no offer meets are refused with the wrong value and the nearest one that would work."""

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.memory import Memory, estimate
from controlplane.catalog.money import MicroDollars, micro_of
from controlplane.catalog.shipped import shipped_catalog, shipped_links
from controlplane.planning import refusals as refusals_module
from controlplane.planning.criteria import Criteria, criteria_left, criteria_of
from controlplane.planning.explanations import no_room
from controlplane.planning.market import Market, market_of
from controlplane.planning.plan import Change, plan
from controlplane.planning.profiles import profile_of
from controlplane.planning.refusals import leaves_none, refusals, unfit
from controlplane.planning.tuning import Tuning
from controlplane.throughput.profile import Profile
from messages.criteria import Deadline, Objective, StepProfile, StepTime
from messages.jobs import JobSpec, Pod, Workers
from tests.planning.builders import ALL_GPUS, IOWA_B, OREGON, USD, a_market, a_small_profile, an_option, some_criteria
from tests.planning.markets import criterias, markets, profiles
from tests.specs import a_planned_spec, a_spec

OFFERS = shipped_catalog().offers
LINKS = shipped_links()


def a_job(workers: Workers | None = None, profile: StepProfile | None = None, **criteria: Any) -> JobSpec:
    fields = {"profile": profile, "hyperparameters": {"global_batch": 64}}
    return a_planned_spec("opt", workers or Workers(min=2, max=4), fields=fields, **criteria)


def refused(spec: JobSpec, limits: dict[MachineKind, int] | None = None) -> list[tuple[str, str]]:
    criteria = criteria_of(spec)
    seen = Memory()
    market = market_of(criteria, OFFERS, LINKS, seen=lambda zone, name: estimate(seen, zone, name, 0.0), limits=limits)
    return refusals(spec, criteria, OFFERS, market, profile_of(spec))


def nearest(message: str) -> int:
    """The number of workers that would work, from the end of a message; 0 if none would."""
    found = re.search(r"; (\d+|none) [^;]*$", message)
    assert found is not None, message
    return 0 if found[1] == "none" else int(found[1])


def test_what_can_be_had_is_not_refused() -> None:
    assert refused(a_job(accelerators=("L4", "A100"), regions=("us-",), max_usd_per_hour=30.0)) == []


@pytest.mark.parametrize(
    ("spec", "path", "parts"),
    [
        (a_job(accelerators=("K80",)), "capacity.accelerators[0]", ("is K80,", "; use T4, L4,")),
        (a_job(regions=("us-central9",)), "capacity.regions", ("is us-central9,", "; us-central1 or")),
        (a_job(zones=("us-central1-z",)), "capacity.zones", ("us-central1-a",)),
        (
            a_job(accelerators=("L4",), workers=Workers(min=1, max=2, ranks=3)),
            "workers.ranks",
            (leaves_none("3", "1 or 2 or 4 or 8"),),
        ),
        (a_job(accelerators=("L4",), machine_types=("a2-highgpu-1g",)), "capacity.machine_types", ("g2-standard-8",)),
        (
            a_job(accelerators=("L4",), profile=StepProfile(1, {"H100": StepTime(0.1)})),
            "profile.compute",
            ("has H100,", " L4"),
        ),
        (a_job(profile=StepProfile(1, {"GTX": StepTime(0.1)})), "profile.compute.GTX", ("; use T4, L4,",)),
        (
            a_job(accelerators=("L4",), zones=("us-central1-a",), max_usd_per_hour=0.5),
            "capacity.max_usd_per_hour",
            ("is $0.50,", "2 workers", "$1.03 an hour (2 × L4 in us-central1-a)", "at least 1.03"),
        ),
        (
            a_job(accelerators=("L4",), zones=("us-central1-a",), max_usd_total=0.1),
            "capacity.max_usd_total",
            ("at least 0.18",),
        ),
        (
            a_job(workers=Workers(), accelerators=("L4",), zones=("us-central1-a",), max_usd_total=0.001),
            "capacity.max_usd_total",
            ("is $0.001,", "1 worker ", "$0.52 an hour"),
        ),
        (a_job(workers=Workers(min=65, max=65), accelerators=("L4",)), "workers.min", ("is 65,", "; 64 ")),
    ],
)
def test_a_contradiction_has_its_number_and_the_nearest_that_would_work(
    spec: JobSpec, path: str, parts: tuple[str, ...]
) -> None:
    ((place, said),) = refused(spec)
    assert place == path
    assert [part for part in parts if part not in said] == []


def test_the_nearest_number_of_workers_is_the_most_that_the_batch_is_shared_among_not_the_fastest() -> None:
    spec = structs.replace(a_job(workers=Workers(min=3, max=4)), hyperparameters={"global_batch": 2})
    ((place, said),) = refused(spec)
    assert (place, nearest(said)) == ("workers.min", 2)
    assert refused(structs.replace(spec, workers=Workers(min=2, max=4))) == []


def test_a_search_without_a_proof_refuses_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals_module, "_QUIET", Tuning(alternatives=0, solves=0))
    assert refused(a_job(accelerators=("L4",), max_usd_per_hour=0.01)) == []


def test_where_only_whole_copies_of_the_model_train_the_money_is_told_for_the_fewest_that_hold_one() -> None:
    criteria = some_criteria(min_workers=1, max_workers=8, max_micro_usd_per_hour=MicroDollars(USD // 10))
    profile = structs.replace(a_small_profile(), replica_gpus=3)
    ((place, said),) = refusals(a_job(), criteria, OFFERS, a_market(an_option(usd=0.5, limit=8)), profile)
    assert place == "capacity.max_usd_per_hour"
    assert "3 workers" in said
    assert "$1.50 an hour" in said


@pytest.mark.parametrize(
    ("ranks", "needs_gpus", "fleet", "would"),
    [
        (3, True, {1}, "1"),
        (9, True, {0, 8, 1}, "1 or 8"),
        (1, True, {1}, None),
        (3, True, {1, 8}, None),
        (3, False, {1}, None),
        (3, True, {0}, None),
    ],
    ids=["too small", "all too small", "fits", "one fits", "needs none", "no accelerators"],
)
def test_without_a_plan_only_ranks_that_fit_on_no_machine_are_refused(
    ranks: int, needs_gpus: bool, fleet: set[int], would: str | None
) -> None:
    spec = a_spec("opt", ranks=ranks, pod=Pod(gpu=needs_gpus))
    reported = [("workers.ranks", leaves_none(str(ranks), would))] if would is not None else []
    assert unfit(spec, fleet) == reported


def test_a_fleet_that_is_too_small_is_told() -> None:
    limits = {MachineKind("us-central1-a", "g2-standard-8", "L4", 1, True): 3}
    spec = a_job(workers=Workers(min=4, max=4))
    ((place, said),) = refused(spec, limits)
    assert (place, nearest(said)) == ("workers.min", 3)
    assert [part for part in ("is 4,", "3 machines", "(L4)") if part not in said] == []


def test_all_that_is_wrong_is_told_at_once_and_a_number_with_the_nearest_of_the_others() -> None:
    limits = {MachineKind("us-central1-a", "g2-standard-8", "L4", 1, True): 3}
    spec = a_job(workers=Workers(min=4, max=4), accelerators=("L4", "K80"), max_usd_per_hour=0.5, max_usd_total=0.1)
    said = dict(refused(spec, limits))
    assert list(said) == [
        "capacity.accelerators[1]",
        "workers.min",
        "capacity.max_usd_per_hour",
        "capacity.max_usd_total",
    ]
    assert nearest(said["workers.min"]) == 3
    assert "3 workers" in said["capacity.max_usd_per_hour"]
    assert "$1.54 an hour" in said["capacity.max_usd_per_hour"]
    assert said["capacity.max_usd_total"].endswith("$0.26; at least 0.26")
    right = a_job(workers=Workers(min=3, max=4), accelerators=("L4",), max_usd_per_hour=1.54, max_usd_total=0.26)
    assert refused(right, limits) == []


def test_each_criterion_that_leaves_nothing_by_itself_is_told() -> None:
    said = dict(refused(a_job(zones=("us-central1-z",), accelerators=("L4",), machine_types=("g2-standard-7",))))
    assert list(said) == ["capacity.zones", "capacity.machine_types"]
    assert "us-central1-a" in said["capacity.zones"] and "g2-standard-8" in said["capacity.machine_types"]


def test_machines_that_nobody_named_are_not_counted_for_one_that_nobody_knows() -> None:
    spec = a_job(accelerators=("K80",), max_usd_per_hour=0.01)
    assert [place for place, _ in refused(spec)] == ["capacity.accelerators[0]"]


def test_who_wants_speed_is_not_refused_for_the_price_of_the_fastest_place() -> None:
    """Two machines near each other for $1.20, or for $0.80 and some cents of egress far from each other."""
    near, far = (
        [an_option(usd=0.6, limit=2)],
        [an_option(OREGON, usd=0.4, limit=1), an_option(IOWA_B, usd=0.4, limit=1)],
    )
    criteria = some_criteria(
        min_workers=2,
        objective=Objective.THROUGHPUT,
        max_micro_usd_per_hour=MicroDollars(USD),
        max_micro_usd_total=MicroDollars(USD // 6),
    )
    market, profile = a_market(*near, *far), a_small_profile(gradient_bytes=10**6)
    assert refusals(a_job(), criteria, OFFERS, market, profile) == []


def test_what_is_told_as_enough_is_enough() -> None:
    reported = refused(a_job(accelerators=("L4",), max_usd_per_hour=0.2))[0][1].rpartition("at least ")[2]
    assert refused(a_job(accelerators=("L4",), max_usd_per_hour=float(reported))) == []


@pytest.mark.parametrize("gradient_bytes", [0, 10**7])
@pytest.mark.parametrize("zones", [("us-central1-a",), ("us-central1-a", IOWA_B)], ids=["one zone", "two zones"])
def test_a_cap_of_exactly_the_price_that_was_told_is_planned(zones: tuple[str, ...], gradient_bytes: int) -> None:
    market = a_market(*(an_option(zone, usd=0.5, limit=4 // len(zones)) for zone in zones))
    profile = a_small_profile(gradient_bytes=gradient_bytes)
    criteria = some_criteria(min_workers=4, max_workers=4, max_micro_usd_per_hour=MicroDollars(USD))
    right = corrected(criteria, refusals(a_job(), criteria, OFFERS, market, profile))
    assert right.max_micro_usd_per_hour is not None
    assert len(zones) > 1 or right.max_micro_usd_per_hour == 2 * USD
    assert refusals(a_job(), right, OFFERS, market, profile) == []
    made = plan(right, profile, market)
    assert (made.change, sum(made.ask.values())) == (Change.BEGIN, 4)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(criterias(), profiles(), markets(on_demand=False), st.integers(1, 30))
def test_whatever_number_a_refusal_names_is_planned(
    drawn: Criteria, profile: Profile, market: Market, tenths: int
) -> None:
    cap = MicroDollars(tenths * USD // 10)
    criteria = structs.replace(drawn, max_micro_usd_per_hour=cap, on_demand=0.0)
    reported = refusals(a_job(), criteria, OFFERS, market, profile)
    if any(path == "workers.min" and nearest(text) == 0 for path, text in reported):
        return
    right = corrected(criteria, reported)
    assert refusals(a_job(), right, OFFERS, market, profile) == []
    made = plan(right, profile, market)
    assert made.change is Change.BEGIN, (reported, made.why)
    assert made.ask == made.placement


def corrected(criteria: Criteria, reported: list[tuple[str, str]]) -> Criteria:
    """The criteria with the suggested values."""
    for path, text in reported:
        if path == "workers.min":
            criteria = structs.replace(criteria, min_workers=nearest(text))
        else:
            assert path == "capacity.max_usd_per_hour"
            cap = micro_of(float(text.rpartition("at least ")[2]))
            criteria = structs.replace(criteria, max_micro_usd_per_hour=cap)
    return criteria


def test_a_quota_without_room_is_named_with_where_to_ask_for_more() -> None:
    market = a_market(an_option(IOWA_B), quotas={ALL_GPUS: 0})
    market = structs.replace(market, quotas=structs.replace(market.quotas, page="https://quotas.example"))
    criteria = some_criteria(min_workers=1, max_workers=4)
    [(path, text)] = refusals(a_job(), criteria, OFFERS, market, a_small_profile())
    assert path == "workers.min"
    parts = ("is 1,", no_room([ALL_GPUS]), market.quotas.page, "; none ")
    assert [part for part in parts if part not in text] == []


def test_a_deadline_becomes_steps_in_a_second() -> None:
    spec = a_job(objective=Objective.DEADLINE, deadline=Deadline(hours=10.0, steps=36_000))
    assert criteria_of(spec).min_steps_per_s == 1.0
    left = criteria_left(criteria_of(spec), spot_only=False, steps_left=18_000, seconds_left=9000.0)
    assert left.min_steps_per_s == 2.0


def test_a_budget_may_forbid_machines_on_demand_and_one_that_was_raised_counts() -> None:
    asked = criteria_of(a_job(on_demand=0.5, max_usd_total=10.0))
    assert criteria_left(asked, spot_only=False) == asked
    left = criteria_left(asked, spot_only=True, micro_usd_total=micro_of(20.0))
    assert (left.on_demand, left.max_micro_usd_total) == (0.0, 20_000_000)


def test_without_a_profile_one_is_assumed_and_called_so() -> None:
    profile = profile_of(a_job())
    assert profile.is_assumed
    assert profile.compute["H100"] == profile.compute["L4"]
    fastest = profile_of(a_job(objective=Objective.THROUGHPUT)).compute
    assert fastest["H100"].seconds_per_sample < fastest["L4"].seconds_per_sample
    given = structs.replace(a_job(), profile=StepProfile(10**9, {"A100": StepTime(0.1)}))
    assert profile_of(given).compute.keys() == {"A100-40", "A100-80"}
    assert not profile_of(given).is_assumed


def test_money_in_a_job_file_is_exact() -> None:
    assert criteria_of(a_job(max_usd_per_hour=0.1, max_usd_total=1234.56)).max_micro_usd_per_hour == 100_000
    assert criteria_of(a_job(max_usd_total=1234.56)).max_micro_usd_total == 1_234_560_000
