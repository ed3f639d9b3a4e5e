"""Job files: all problems are reported at once, with their places and a hint."""

import errno
import json
import os
from pathlib import Path

import pytest

from runtime.errors import UserError
from tradewind.client.jobfile import read_job


def a_file(folder: Path, text: str) -> Path:
    file = folder / "job.yaml"
    file.write_text(text)
    return file


def test_the_workdir_is_the_folder_of_the_file_unless_it_says_otherwise(tmp_path: Path) -> None:
    spec = read_job(a_file(tmp_path, "{name: mnist, launch: {script: train.py}}"))
    assert (spec.launch.workdir, spec.launch.script) == (str(tmp_path.resolve()), "train.py")


def test_a_relative_workdir_is_taken_from_the_folder_of_the_file(tmp_path: Path) -> None:
    spec = read_job(a_file(tmp_path, "{name: mnist, launch: {script: train.py, workdir: src/../code}}"))
    assert spec.launch.workdir == str(tmp_path.resolve() / "code")


def test_an_absolute_workdir_stays(tmp_path: Path) -> None:
    spec = read_job(a_file(tmp_path, "{name: mnist, launch: {module: my.train, workdir: /data/run}}"))
    assert (spec.launch.workdir, spec.launch.module) == ("/data/run", "my.train")


def test_every_problem_is_told_at_once_with_its_path_and_the_next_command(tmp_path: Path) -> None:
    file = a_file(
        tmp_path,
        "name: Not A Name\nlaunch: {script: train.py, arguments: [1]}\nworkers: {max: many, min: 0}\nreplicas: 2\n",
    )
    with pytest.raises(UserError) as refused:
        read_job(file)
    paths = [problem.split(":")[0] for problem in refused.value.problems]
    assert sorted(paths) == ["launch.arguments", "name", "replicas", "workers.max", "workers.min"]
    assert f"`tradewind submit {file}`" in refused.value.hint


def test_contradictions_between_fields_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        read_job(a_file(tmp_path, "{name: mnist, launch: {script: a.py, module: a}, workers: {max: 2, min: 4}}"))
    assert [problem.split(":")[0] for problem in refused.value.problems] == ["launch", "workers.min"]


def test_mistakes_of_several_kinds_are_told_together(tmp_path: Path) -> None:
    launch = "launch: {script: a.py, module: a}"
    with pytest.raises(UserError) as refused:
        read_job(a_file(tmp_path, f"{{name: My Job, {launch}, workers: {{max: 2, min: 4}}, fast: 1}}"))
    paths = [problem.split(":")[0] for problem in refused.value.problems]
    assert paths == ["name", "fast", "launch", "workers.min"]


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        read_job(tmp_path / "nope.yaml")
    assert "nope.yaml" in refused.value.message
    assert refused.value.hint and refused.value.problems == ()


def test_the_file_that_was_probably_meant_is_named(tmp_path: Path) -> None:
    a_file(tmp_path, "{}")
    with pytest.raises(UserError) as refused:
        read_job(tmp_path / "jbo.yaml")
    assert f"{tmp_path / 'job.yaml'}?" in refused.value.message


def refusal_of(folder: Path, workdir: str) -> UserError:
    with pytest.raises(UserError) as refused:
        read_job(a_file(folder, f"{{name: mnist, launch: {{script: train.py, workdir: {workdir}}}}}"))
    return refused.value


def test_a_workdir_whose_links_form_a_circle_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "here").symlink_to("there")
    (tmp_path / "there").symlink_to("here")
    for workdir in ("here", "here/code"):
        refused = refusal_of(tmp_path, workdir)
        assert "launch.workdir" in refused.message and repr(workdir) in refused.message and "links" in refused.message
        assert "launch.workdir" in refused.hint


def test_a_workdir_of_a_user_that_does_not_exist_is_refused_in_a_sentence(tmp_path: Path) -> None:
    refused = refusal_of(tmp_path, "~nosuchuser/code")
    assert "launch.workdir" in refused.message and "'~nosuchuser/code'" in refused.message


def test_the_home_folder_may_be_in_the_path_of_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for given, meant in (("~/out", "/home/me/out"), ("out", "out"), ("/data/out", "/data/out")):
        text = f"{{name: mnist, launch: {{script: train.py, checkpoint_path: {given}}}}}"
        assert read_job(a_file(tmp_path, text)).launch.checkpoint_path == meant


def test_a_nul_is_a_problem_of_the_file_wherever_it_is(tmp_path: Path) -> None:
    launch = {"script": "a\0b", "workdir": "\0", "python": "/bin/\0", "args": ["fine", "a\0"]}
    launch |= {"restart_args": ["fine", "a\0"], "checkpoint_path": "a\0"}
    with pytest.raises(UserError) as refused:
        read_job(a_file(tmp_path, json.dumps({"name": "mnist", "launch": launch})))
    keys = ("script", "workdir", "python", "args[1]", "restart_args[1]", "checkpoint_path")
    assert [problem.partition(":")[0] for problem in refused.value.problems] == [f"launch.{key}" for key in keys]
    assert all("NUL" in problem for problem in refused.value.problems)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "job.yaml"
    os.mkfifo(pipe)
    with pytest.raises(UserError) as refused:
        read_job(pipe)
    assert str(pipe) in refused.value.message and "regular" in refused.value.message


@pytest.mark.parametrize(
    ("path", "why"),
    [("/dev/zero", "regular"), ("/dev/null", "regular"), ("/", os.strerror(errno.EISDIR))],
)
def test_a_device_or_a_folder_is_no_job_file(path: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        read_job(Path(path))


def test_a_file_whose_links_form_a_circle_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").symlink_to("job.yaml")
    with pytest.raises(UserError, match=os.strerror(errno.ELOOP)):
        read_job(tmp_path / "job.yaml")
    with pytest.raises(UserError, match=os.strerror(errno.ENAMETOOLONG)):
        read_job(tmp_path / ("x" * 300))
