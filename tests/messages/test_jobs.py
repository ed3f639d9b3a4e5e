"""A job that contradicts itself says where."""

import msgspec
import pytest

from messages.jobs import JobSpec, Launch, Workers, contradictions


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
    ],
)
def test_a_contradiction_names_its_place(changes: dict[str, object], path: str) -> None:
    assert [place for place, _text in contradictions(a_job(**changes))] == [path]


def test_all_contradictions_are_told_at_once() -> None:
    found = contradictions(a_job(launch=Launch(), workers=Workers(min=3, max=2), replica=9))
    assert {place for place, _text in found} == {"launch", "workers.min", "replica"}
