"""Every problem is reported at once, with its path, in words a person can act on."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta, Struct, field, inspect

from messages.ids import NAME_PATTERN, Name
from messages.jobs import JobSpec, Timeouts, contradictions
from runtime import problem_messages as words
from runtime.errors import UserError
from runtime.problems import all_problems, decode_checked, problems
from tests.messages.strategies import values_of

NAME_RULE = get_args(Name)[1].description
SHARE_RULE = "a share of the whole"
A_JOB = {"name": "mnist", "launch": {"script": "train.py"}}


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"


class Point(Struct, frozen=True, forbid_unknown_fields=True):
    x: int
    y: int = 0


class Sample(Struct, frozen=True, forbid_unknown_fields=True):
    share: Annotated[float, Meta(ge=0, le=1, description=SHARE_RULE)] = 0.5
    even: Annotated[int, Meta(multiple_of=2)] = 0
    words: Annotated[tuple[str, ...], Meta(min_length=1, max_length=2)] = ("a",)
    short: Annotated[str, Meta(max_length=3)] = ""
    color: Color = Color.RED
    mode: Literal["fast", "slow"] = "fast"
    point: Point | None = None
    points: list[Point] = field(default_factory=list)
    limits: dict[str, Annotated[int, Meta(ge=0)]] = field(default_factory=dict)
    flag: bool = False
    either: str | list[int] = ""


class Open(Struct, frozen=True):
    x: int = 0


def reported(wanted: Any, data: object, **options: Any) -> dict[str, str]:
    return {problem.path: problem.text for problem in problems(wanted, data, **options)}


def test_a_sound_job_has_no_problems() -> None:
    assert reported(JobSpec, A_JOB) == {}
    assert decode_checked(JobSpec, A_JOB) == msgspec.convert(A_JOB, JobSpec)


def test_all_problems_of_a_job_are_told_at_once_with_their_paths() -> None:
    found = reported(
        JobSpec,
        {
            "name": "My Job",
            "launch": {"script": "train.py", "args": ["--epochs", 3], "env": {"DEBUG": 1}, "modul": "x"},
            "workers": {"min": "four", "max": 0, "ranks": None},
            "timeouts": 5,
            "hyperparameters": {"layers": [1, 2]},
            "worker": 3,
        },
    )
    assert found == {
        "name": words.not_allowed("My Job", {"pattern": NAME_PATTERN}, NAME_RULE),
        "launch.args[1]": words.expected("str", 3, shown=True) + words.quotes_advised(inspect.StrType(), 3),
        "launch.env.DEBUG": words.expected("str", 1, shown=True) + words.quotes_advised(inspect.StrType(), 1),
        "launch.modul": words.unknown_key("modul", [], "module"),
        "workers.min": words.expected("int", "four", shown=True),
        "workers.max": words.not_allowed(0, {"ge": 1, "le": 100_000}),
        "workers.ranks": words.expected("int", None),
        "timeouts": words.expected(words.struct_of(Timeouts.__struct_fields__), 5),
        "hyperparameters.layers": words.expected(words.one_of(["str", "int", "float", "bool"]), [1, 2]),
        "worker": words.unknown_key("worker", [], "workers"),
    }


def test_what_is_missing_is_told_with_what_it_should_be() -> None:
    assert reported(JobSpec, {}) == {
        "name": words.missing(NAME_RULE),
        "launch": words.missing(),
    }


@pytest.mark.parametrize(
    ("data", "path", "text"),
    [
        ({"share": 2}, "share", "is 2, but must be at least 0 and at most 1 (a share of the whole)"),
        ({"share": "0.5"}, "share", "expected float, got str '0.5'"),
        ({"share": float("nan")}, "share", "is nan, but must be a finite number"),
        ({"even": 3}, "even", "is 3, but must be a multiple of 2"),
        ({"even": True}, "even", "expected int, got bool True"),
        ({"words": []}, "words", "has 0 items, but must have at least 1"),
        ({"words": ["a", "b", "c"]}, "words", "has 3 items, but must have at most 2"),
        ({"words": "abc"}, "words", "expected a list, got str"),
        ({"short": "abcd"}, "short", "is 'abcd', but must be at most 3 long"),
        ({"short": "\ud800"}, "short", "contains half a character (a lone surrogate)"),
        ({"color": "green"}, "color", "expected red or blue, got str 'green'"),
        ({"mode": "medium"}, "mode", "expected fast or slow, got str 'medium'"),
        ({"point": {"y": 1}}, "point.x", "is missing"),
        ({"point": 3}, "point", "expected keys and values or nothing, got int"),
        ({"points": [{"x": 1}, {"x": "1"}]}, "points[1].x", "expected int, got str '1'"),
        ({"limits": {"a b": -1}}, "limits['a b']", "is -1, but must be at least 0"),
        ({"limits": {7: 1}}, "limits[7]", "as a key: expected str, got int 7; put it in quotes"),
        ({"limits": []}, "limits", "expected keys and values, got list"),
        ({"flag": "yes"}, "flag", "expected bool, got str 'yes'"),
        ({"either": ["a"]}, "either[0]", "expected int, got str 'a'"),
        ({"zzz": 1}, "zzz", None),
        ({True: 1}, "[True]", None),
        ([], "", None),
        (None, "", None),
    ],
)
def test_a_problem_is_told_in_words(data: object, path: str, text: str | None) -> None:
    found = reported(Sample, data)
    assert list(found) == [path]
    if text is not None:
        assert found[path] == text


def test_whole_numbers_are_taken_for_numbers_and_lists_for_tuples() -> None:
    assert decode_checked(Sample, {"share": 1, "words": ["a", "b"]}) == Sample(share=1.0, words=("a", "b"))


def test_unknown_keys_pass_where_the_struct_allows_them() -> None:
    assert reported(Open, {"x": 1, "later": 2}) == {}


def test_text_becomes_numbers_only_where_there_is_nothing_but_text() -> None:
    data = {"share": "0.25", "even": "4", "flag": "true"}
    assert set(reported(Sample, data)) == {"share", "even", "flag"}
    assert decode_checked(Sample, data, strict=False) == Sample(share=0.25, even=4, flag=True)
    assert reported(Sample, {"even": "three", "share": "7"}, strict=False) == {
        "even": words.expected("int", "three", shown=True),
        "share": words.not_allowed("7", {"ge": 0, "le": 1}, SHARE_RULE),
    }


def test_contradictions_are_told_once_the_fields_are_sound() -> None:
    with pytest.raises(UserError) as raised:
        decode_checked(JobSpec, {"name": "a", "launch": {}, "replica": 9}, what="job.yaml", checks=contradictions)
    assert "job.yaml" in raised.value.message and "2" in raised.value.message
    assert [problem.partition(":")[0] for problem in raised.value.problems] == ["launch", "replica"]
    assert str(raised.value).splitlines()[1].startswith("  launch: ")


def test_contradictions_among_sound_fields_are_told_with_the_fields_that_are_not() -> None:
    data = {
        "name": "My Job",
        "launch": {"scirpt": "train.py"},
        "workers": {"max": 2, "min": 4},
        "capacity": {"max_usd_total": "much", "when_spent": "pause", "deadline": {"hours": 2}},
        "hyperparameters": {"global_batch": 0},
    }
    found = all_problems(JobSpec, data, contradictions)
    assert sorted(problem.path for problem in found) == [
        "capacity.deadline",
        "capacity.deadline.steps",
        "capacity.max_usd_total",
        "hyperparameters.global_batch",
        "launch.scirpt",
        "name",
        "workers.min",
    ]


@pytest.mark.parametrize(
    "data",
    [
        {"workers": {"max": "four", "min": 3}},
        {"workers": {"maxx": 4, "min": 3}},
        {"workers": 4, "replica": 4},
        {"launch": {"script": 7}},
        {"launch": {"modul": "a.b"}},
        {"launch": None},
        {"capacity": {"max_usd_total": -1, "when_spent": "stop"}},
        {"capacity": {"objective": "dead-line", "deadline": {"hours": 1, "steps": 5}}},
        {"profile": {"gradient_bytes": 1, "compute": {"L4": {}}}, "hyperparameters": {"global_batch": 8}},
    ],
)
def test_what_follows_only_from_a_wrong_field_is_not_told_besides(data: dict[str, object]) -> None:
    job = {"name": "a", "launch": {"script": "train.py"}, **data}
    found = all_problems(JobSpec, job, contradictions)
    assert found == problems(JobSpec, job) != []


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None)
@given(st.fixed_dictionaries({}, optional={field.name: ANYTHING for field in msgspec.structs.fields(JobSpec)}))
def test_no_data_makes_it_raise_and_what_it_lets_pass_can_be_decoded(data: dict[str, object]) -> None:
    found = problems(JobSpec, data)
    assert all_problems(JobSpec, data, contradictions)[: len(found)] == found
    if not found:
        assert isinstance(msgspec.convert(data, JobSpec), JobSpec)


@settings(max_examples=30, deadline=None)
@given(values_of(Sample))
def test_what_msgspec_takes_has_no_problem_and_what_it_refuses_has_one(sample: Sample) -> None:
    data = msgspec.to_builtins(sample)
    try:
        msgspec.convert(data, Sample)
    except msgspec.ValidationError:
        assert problems(Sample, data)
    else:
        assert problems(Sample, data) == []


class Counted(list[object]):
    """Counts how many of its items were looked at."""

    def __init__(self, items: list[object]) -> None:
        super().__init__(items)
        self.seen = 0

    def __iter__(self) -> Iterator[object]:
        for item in super().__iter__():
            self.seen += 1
            yield item


@pytest.mark.parametrize("wanted", [tuple[str, ...], tuple[str, ...] | None])
def test_no_more_is_looked_at_than_is_reported(wanted: Any) -> None:
    data = Counted([1] * 5_000)
    found = problems(wanted, data)
    assert [each.path for each in found] == [*(f"[{number}]" for number in range(100)), ""]
    assert "100" in str(found[-1])
    assert data.seen <= 102


def test_a_hundred_problems_are_all_reported() -> None:
    assert len(problems(tuple[str, ...], [1] * 100)) == 100
    with pytest.raises(UserError, match="has 100 problems"):
        decode_checked(tuple[str, ...], [1] * 100)
    with pytest.raises(UserError, match="more than 100"):
        decode_checked(tuple[str, ...], [1] * 101)


def test_contradictions_are_bounded_too() -> None:
    env = {f"a={number}": "" for number in range(1_000)}
    launch: dict[str, object] = {"script": "x.py", "env": env}
    assert len(all_problems(JobSpec, {"name": "x", "launch": launch}, contradictions)) == 101
    assert len(all_problems(JobSpec, {"name": "x", "launch": launch, "replica": "two"}, contradictions)) == 101


def test_a_very_long_key_is_shown_in_part() -> None:
    [problem] = problems(JobSpec, {"name": "x", "launch": {"script": "x.py"}, "k" * 100_000: 1})
    assert len(str(problem)) < 1_000
