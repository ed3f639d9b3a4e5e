"""A YAML file that a stranger wrote: bounded, and every complaint says where."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from messages.jobs import JobSpec, contradictions
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
    return raised.value.sentence


def test_a_job_file_is_read(tmp_path: Path) -> None:
    job = yaml_file(written(tmp_path, A_JOB), JobSpec, checks=contradictions)
    assert (job.name, job.workers.max, job.timeouts.ready_s) == ("mnist", 4, 30.0)
    assert job.launch.args == ("--epochs", "3")


def test_all_problems_of_a_file_are_told_together(tmp_path: Path) -> None:
    file = written(tmp_path, "name: mnist\nlaunch: {scrip: x}\nworkers: {min: four}\n")
    with pytest.raises(UserError) as raised:
        yaml_file(file, JobSpec, checks=contradictions)
    assert raised.value.sentence == f"{file} has 2 problems:"
    assert raised.value.problems == (
        "launch.scrip: unknown key; did you mean 'script'?",
        "workers.min: expected int, got str 'four'",
    )


def test_contradictions_are_told_with_their_place_in_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError) as raised:
        yaml_file(written(tmp_path, "name: a\nlaunch: {}\n"), JobSpec, what="The job", checks=contradictions)
    assert str(raised.value).startswith("The job has a problem:\n  launch: give either")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "job.yaml is empty"),
        ("# only a comment\n", "job.yaml is empty"),
        ("a: 1\nb: 2\na: 3\n", "job.yaml, line 3, column 1: the key 'a' was given before, in line 1"),
        ("a: {b: 1, b: 2}", "job.yaml, line 1, column 11: the key 'b' was given before, in line 1"),
        (
            "a: &x [1]\nb: *x\n",
            "job.yaml, line 2, column 4: aliases such as *x are not supported; repeat the text",
        ),
        ("a: 1\n b: 2\n", "job.yaml, line 2, column 3: mapping values are not allowed here"),
        ("a: 2026-13-45", "job.yaml, line 1, column 4: this is no timestamp"),
        (f"a: {'9' * 5000}", "job.yaml, line 1, column 4: this is no int"),
        ("ok: 1\nbad: \0\n", "job.yaml, line 2: the character 0 is not allowed"),
        ("[" * 1000, "job.yaml, line 1, column 51: this is nested more than 50 deep"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_with_its_place(text: str, sentence: str) -> None:
    assert refused(text) == sentence


@pytest.mark.parametrize("text", ["a: [", "a: !!python/object:os.system x", "--- 1\n--- 2\n", "{a: b}: c", "\t- a"])
def test_other_yaml_errors_name_their_line_too(text: str) -> None:
    assert refused(text).startswith("job.yaml, line ")
    assert "\n" not in refused(text)


def test_a_bomb_of_aliases_is_refused_before_it_unfolds() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    assert "aliases" in refused("\n".join(lines))


def test_files_that_cannot_be_read_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no file"):
        yaml_file(tmp_path / "absent.yaml", JobSpec)
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        yaml_file(tmp_path, JobSpec)
    with pytest.raises(UserError, match="line 2: this is not UTF-8"):
        yaml_file(written(tmp_path, b"a: 1\nb: \xff\n"), JobSpec)
    with pytest.raises(UserError, match="larger than 1024 KiB"):
        yaml_file(written(tmp_path, b"#" * (MAX_BYTES + 1)), JobSpec)


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ab: -[]{},&*!|>'\"#\n\t\x00%@`?1.~"), max_size=40))
def test_no_text_makes_it_raise_anything_but_a_sentence(text: str) -> None:
    try:
        load_yaml(text, "job.yaml")
    except UserError as error:
        assert error.sentence.startswith("job.yaml")
