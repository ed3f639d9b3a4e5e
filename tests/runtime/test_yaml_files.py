"""YAML files of users: bounded, and each error names its place."""

import errno
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from messages.jobs import JobSpec, contradictions
from runtime import problem_messages as words
from runtime.errors import UserError
from runtime.yaml_files import MAX_BYTES, load_yaml, yaml_file

A_JOB = """
name: mnist
launch:
  script: train.py
  args: [--epochs, "3"]
workers: {min: 2, max: 4}
timeouts: {ready_s: 30}
hyperparameters: {learning_rate: 0.1, global_batch: 64}
"""


def written(folder: Path, content: str | bytes) -> Path:
    file = folder / "job.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def refused(text: str) -> str:
    with pytest.raises(UserError) as raised:
        load_yaml(text, "job.yaml")
    return raised.value.message


def test_a_job_file_is_read(tmp_path: Path) -> None:
    job = yaml_file(written(tmp_path, A_JOB), JobSpec, checks=contradictions)
    assert (job.name, job.workers.max, job.timeouts.ready_s) == ("mnist", 4, 30.0)
    assert job.launch.args == ("--epochs", "3")


def test_all_problems_of_a_file_are_told_together(tmp_path: Path) -> None:
    file = written(tmp_path, "name: mnist\nlaunch: {scrip: x}\nworkers: {min: four}\n")
    with pytest.raises(UserError) as raised:
        yaml_file(file, JobSpec, checks=contradictions)
    assert str(file) in raised.value.message and "2" in raised.value.message
    assert raised.value.problems == (
        f"launch.scrip: {words.unknown_key('scrip', [], 'script')}",
        f"workers.min: {words.expected('int', 'four', shown=True)}",
    )


def test_contradictions_are_told_with_their_place_in_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError) as raised:
        yaml_file(written(tmp_path, "name: a\nlaunch: {}\n"), JobSpec, what="The job", checks=contradictions)
    assert raised.value.message.startswith("The job ")
    assert [problem.partition(":")[0] for problem in raised.value.problems] == ["launch"]


@pytest.mark.parametrize(
    ("text", "place", "values"),
    [
        ("", "job.yaml", ("empty",)),
        ("# only a comment\n", "job.yaml", ("empty",)),
        ("a: 1\nb: 2\na: 3\n", "job.yaml, line 3, column 1: ", ("'a'", "line 1")),
        ("a: {b: 1, b: 2}", "job.yaml, line 1, column 11: ", ("'b'", "line 1")),
        ("a: &x [1]\nb: *x\n", "job.yaml, line 2, column 4: ", ("aliases", "*x")),
        ("a: 1\n b: 2\n", "job.yaml, line 2, column 3: ", ("mapping values",)),
        ("a: 2026-13-45", "job.yaml, line 1, column 4: ", ("timestamp",)),
        (f"a: {'9' * 5000}", "job.yaml, line 1, column 4: ", (" int",)),
        ("ok: 1\nbad: \0\n", "job.yaml, line 2: ", ("character 0",)),
        ("[" * 1000, "job.yaml, line 1, column 51: ", ("50 deep",)),
    ],
)
def test_what_cannot_be_read_is_one_line_with_its_place(text: str, place: str, values: tuple[str, ...]) -> None:
    message = refused(text)
    assert message.startswith(place) and "\n" not in message
    assert all(value in message.removeprefix(place) for value in values)


@pytest.mark.parametrize("text", ["a: [", "a: !!python/object:os.system x", "--- 1\n--- 2\n", "{a: b}: c", "\t- a"])
def test_other_yaml_errors_name_their_line_too(text: str) -> None:
    place = re.compile(r"job\.yaml, line \d+, column \d+: ")
    assert place.match(refused(text))
    assert "\n" not in refused(text)


def test_a_bomb_of_aliases_is_refused_before_it_unfolds() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    assert "aliases" in refused("\n".join(lines))


def test_files_that_cannot_be_read_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.yaml"):
        yaml_file(tmp_path / "absent.yaml", JobSpec)
    with pytest.raises(UserError, match=os.strerror(errno.EISDIR)):
        yaml_file(tmp_path, JobSpec)
    with pytest.raises(UserError, match=r"line 2: .*UTF-8"):
        yaml_file(written(tmp_path, b"a: 1\nb: \xff\n"), JobSpec)
    with pytest.raises(UserError, match="1024 KiB"):
        yaml_file(written(tmp_path, b"#" * (MAX_BYTES + 1)), JobSpec)


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ab: -[]{},&*!|>'\"#\n\t\x00%@`?1.~"), max_size=40))
def test_no_text_makes_it_raise_anything_but_a_sentence(text: str) -> None:
    try:
        load_yaml(text, "job.yaml")
    except UserError as error:
        assert error.message.startswith("job.yaml")
