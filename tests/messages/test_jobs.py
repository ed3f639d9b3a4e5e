"""Contradictions in a job are reported with their places."""

import msgspec
import pytest

from messages.criteria import Capacity, Deadline, Objective, StepProfile, StepTime, WhenSpent
from messages.jobs import JobSpec, Launch, Pod, Workers, contradictions


def a_job(**changes: object) -> JobSpec:
    job = JobSpec(name="mnist", launch=Launch(script="train.py"), workers=Workers(max=4, min=2))
    return msgspec.structs.replace(job, **changes)


def test_a_sound_job_contradicts_nothing() -> None:
    assert contradictions(a_job()) == []


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"launch": Launch()}, "launch"),
        ({"launch": Launch(script="a.py", module="b")}, "launch"),
        ({"workers": Workers(min=3, max=2)}, "workers.min"),
        ({"replica": 5}, "replica"),
        ({"hyperparameters": {"global_batch": 0}}, "hyperparameters.global_batch"),
        ({"hyperparameters": {"global_batch": True}}, "hyperparameters.global_batch"),
        ({"hyperparameters": {"global_batch": "many"}}, "hyperparameters.global_batch"),
        ({"hyperparameters": {"steps": 0}}, "hyperparameters.steps"),
        ({"hyperparameters": {"steps": "20000"}}, "hyperparameters.steps"),
        ({"hyperparameters": {"steps": 1.5}}, "hyperparameters.steps"),
    ],
)
def test_a_contradiction_names_its_place(changes: dict[str, object], path: str) -> None:
    assert [place for place, _text in contradictions(a_job(**changes))] == [path]


def test_all_contradictions_are_told_at_once() -> None:
    found = contradictions(a_job(launch=Launch(), workers=Workers(min=3, max=2), replica=9))
    assert {place for place, _text in found} == {"launch", "workers.min", "replica"}


@pytest.mark.parametrize("amount", ["1", "0.5", ".5", "5.", "+2", "500m", "16Gi", "1e3", "2E-1", "100k", "1Ei", "3E"])
def test_amounts_that_kubernetes_takes_are_taken(amount: str) -> None:
    assert contradictions(a_job(pod=Pod(cpu=amount, memory=amount))) == []


@pytest.mark.parametrize(
    "amount", ["", "-1", "0", "0.0", "0e5", "lots", "1 Gi", "16GB", "16gi", "1K", "1.2.3", ".", "4\n"]
)
def test_amounts_that_kubernetes_would_refuse_are_told_before_machines_are_bought(amount: str) -> None:
    found = contradictions(a_job(pod=Pod(cpu=amount, memory=amount)))
    assert [place for place, _text in found] == ["pod.cpu", "pod.memory"]
    assert repr(amount) in found[0][1]


@pytest.mark.parametrize("name", ["", "../x", "Keys", "my_keys", "-keys", "keys.", "a..b", "k" * 254, "keys\n"])
def test_a_secret_that_nobody_can_make_is_told_with_its_place(name: str) -> None:
    ((place, text),) = contradictions(a_job(pod=Pod(secrets=("dataset-key", "a.b", name))))
    assert (place, repr(name) in text) == ("pod.secrets[2]", True)


A_PROFILE = StepProfile(gradient_bytes=10**9, compute={"L4": StepTime(0.01)})
WITH_BATCH = {"hyperparameters": {"global_batch": 64}}


@pytest.mark.parametrize(
    ("changes", "path", "text"),
    [
        ({"capacity": Capacity(when_spent=WhenSpent.STOP)}, "capacity.when_spent", "max_usd_total is missing"),
        (
            {"capacity": Capacity(max_usd_total=9.0, when_spent=WhenSpent.ON_DEMAND_OFF)},
            "capacity.when_spent",
            "on_demand is 0",
        ),
        (
            {"capacity": Capacity(regions=("us-east1",), zones=("us-west1-a",))},
            "capacity.zones[0]",
            "is us-west1-a, which is in none of capacity.regions: us-east1",
        ),
        (
            {"capacity": Capacity(objective=Objective.DEADLINE), "profile": A_PROFILE, **WITH_BATCH},
            "capacity.deadline",
            "is missing",
        ),
        ({"capacity": Capacity(deadline=Deadline(12.0, 1000))}, "capacity.deadline", "capacity.objective is cost"),
        ({"profile": StepProfile(gradient_bytes=1), **WITH_BATCH}, "profile.compute", "is empty"),
        ({"profile": A_PROFILE}, "hyperparameters.global_batch", "is missing"),
    ],
)
def test_contradictory_criteria_name_their_place_and_what_would_be_right(
    changes: dict[str, object], path: str, text: str
) -> None:
    ((place, said),) = contradictions(a_job(**changes))
    assert place == path
    assert text in said


def test_a_deadline_needs_no_profile_since_steps_are_measured() -> None:
    capacity = Capacity(objective=Objective.DEADLINE, deadline=Deadline(12.0, 1000))
    assert contradictions(a_job(capacity=capacity)) == []


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1])
def test_a_share_of_use_that_no_machine_can_have_or_miss_is_refused(share: float) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"capacity\.min_utilisation"):
        msgspec.convert({**msgspec.to_builtins(a_job()), "capacity": {"min_utilisation": share}}, JobSpec)


def test_a_job_without_criteria_is_written_as_before() -> None:
    assert not {"capacity", "profile"} & msgspec.to_builtins(a_job()).keys()


def test_criteria_survive_the_wire() -> None:
    job = a_job(capacity=Capacity(max_usd_per_hour=12.5, accelerators=("L4",)), profile=A_PROFILE, **WITH_BATCH)
    assert msgspec.json.decode(msgspec.json.encode(job), type=JobSpec) == job


def test_modules_to_preload_are_names_of_modules_and_reach_the_host_in_its_environment() -> None:
    good = Launch(script="train.py", env={"A": "1"}, preload=("transformers", "lightning.pytorch"))
    assert good.host_env == {"A": "1", "TRADEWIND_PRELOAD": "transformers,lightning.pytorch"}
    assert contradictions(JobSpec("job", good)) == []
    bad = Launch(script="train.py", preload=("json", "a-b"))
    ((place, text),) = contradictions(JobSpec("job", bad))
    assert place == "launch.preload[1]" and "'a-b'" in text
