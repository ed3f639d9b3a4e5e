"""The arguments of `tradewind run`, before any process starts."""

import errno
import os
import sys
from pathlib import Path

import click
import pytest

from messages.ids import is_name
from messages.jobs import JobSpec, Launch
from runtime.errors import UserError
from tests.cli.command import tradewind
from tradewind.cli.local_commands import run
from tradewind.cli.run import (
    RestartOptions,
    gpu_warning,
    interpreter,
    job_name,
    one_thread_each,
    run_here,
    spec_of,
)
from tradewind.cli.torchrun_options import Outputs


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('hello')\n")
    return tmp_path


def parsed(*arguments: str) -> dict[str, object]:
    return run.make_context("run", [*arguments]).params


def a_spec(script: str = "train.py", *args: str, module: bool = False, most: int = 1, least: int = 1) -> JobSpec:
    return spec_of(
        script, args, module=module, python=None, most=most, least=least, ranks=1, failures=0, environ={"PATH": "/bin"}
    )


def test_arguments_of_the_script_are_passed_on_untouched() -> None:
    given = parsed("--workers", "2", "train.py", "--epochs", "3", "--workers", "9", "-m", "--", "a_b", "--x_y=1")
    assert given["args"] == ("--epochs", "3", "--workers", "9", "-m", "--", "a_b", "--x_y=1")
    assert (given["script"], given["workers"], given["module"]) == ("train.py", (1, 2), False)


@pytest.mark.parametrize(
    ("torchrun", "ours"),
    [
        (["--nproc_per_node=4"], ["--nproc-per-node", "4"]),
        (["--nproc-per-node", "4", "--standalone"], ["--nproc-per-node", "4"]),
        (["--nnodes=2:4"], ["--workers", "2:4"]),
        (["--nnodes", "3", "--max_restarts", "2"], ["--workers", "3", "--max-failures", "2"]),
    ],
)
def test_the_options_of_torchrun_mean_the_same_here(torchrun: list[str], ours: list[str]) -> None:
    theirs = parsed(*torchrun, "train.py")
    assert {**theirs, "standalone": False} == parsed(*ours, "train.py")


@pytest.mark.parametrize("value", ["0", "-1", "many", "4:", "0:2", "2:0"])
def test_a_number_of_workers_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(click.BadParameter):
        parsed("--workers", value, "train.py")


@pytest.mark.parametrize(("value", "least", "most"), [("4", 1, 4), ("2:4", 2, 4), ("4:4", 4, 4)])
def test_a_run_continues_with_as_few_workers_as_was_said_or_with_one(value: str, least: int, most: int) -> None:
    assert parsed("--workers", value, "train.py")["workers"] == (least, most)


async def test_more_workers_at_least_than_there_are_to_be_are_refused_at_once(here: Path) -> None:
    done = await tradewind("run", "--workers", "3:2", "train.py", environ={}, cwd=here)
    assert done.code == 2
    assert "3 workers" in done.error and "(2)" in done.error
    assert done.hint == ["tradewind", "run", "--workers", "3", "…"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["--restart-args", "--init_from=resume"], ("--init_from=resume",)),
        (["--restart-args=--resume out/last.pt"], ("--resume", "out/last.pt")),
        (["--restart_args", "--resume", "--restart-args", "'my folder' --quiet"], ("--resume", "my folder", "--quiet")),
        ([], ()),
    ],
)
def test_arguments_for_restarts_are_split_as_a_shell_would_and_may_come_in_parts(
    given: list[str], meant: tuple[str, ...]
) -> None:
    assert parsed(*given, "train.py")["restart_args"] == meant


def test_arguments_for_restarts_with_an_open_quote_are_refused() -> None:
    with pytest.raises(click.BadParameter, match="quotation"):
        parsed("--restart-args", "--name 'open", "train.py")


def test_modules_to_preload_are_named_with_commas_or_one_by_one() -> None:
    given = parsed("--preload", "transformers,lightning.pytorch", "--preload", "datasets", "train.py")
    assert given["preload"] == ("transformers", "lightning.pytorch", "datasets")


@pytest.mark.parametrize("value", ["trans-formers", "a..b", "1st", "a b", ",", "os;x"])
def test_a_module_that_cannot_be_one_is_refused(value: str) -> None:
    with pytest.raises(click.BadParameter, match="module"):
        parsed("--preload", value, "train.py")


def launch_with(restart: RestartOptions) -> Launch:
    return spec_of(
        "train.py", (), module=False, python=None, most=1, least=1, ranks=1, failures=0, environ={}, restart=restart
    ).launch


def test_what_only_restarts_need_is_part_of_the_job(here: Path) -> None:
    launch = launch_with(RestartOptions(restart_args=("--resume",), checkpoint_path="out", preload=("json",)))
    assert (launch.restart_args, launch.checkpoint_path, launch.preload) == (("--resume",), "out", ("json",))


def test_the_home_folder_may_be_in_the_path_of_checkpoints(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert launch_with(RestartOptions(checkpoint_path="~/out")).checkpoint_path == "/home/me/out"
    with pytest.raises(UserError, match="--checkpoint-path is '~nosuchuser/out'"):
        launch_with(RestartOptions(checkpoint_path="~nosuchuser/out"))


def test_a_number_of_gpus_that_is_none_is_refused_before_anything_is_started(here: Path) -> None:
    with pytest.raises(UserError) as refused:
        run_here(a_spec(), {"TRADEWIND_GPUS": "two"}, Outputs())
    (problem,) = refused.value.problems
    assert problem.startswith("TRADEWIND_GPUS: ")


def test_more_ranks_than_gpus_are_warned_of_before_anything_is_started() -> None:
    warning = gpu_warning(4, 1, 2) or ""
    assert all(part in warning for part in ("4 ranks", "2 GPUs", "NCCL", "2 workers", "gloo"))
    assert [gpu_warning(*sizes) for sizes in ((1, 8, 4), (4, 1, 0), (4, 2, 8))] == [None, None, None]


def test_a_folder_is_no_script(here: Path) -> None:
    with pytest.raises(UserError) as refused:
        a_spec(".")
    assert refused.value.message.startswith(". ")
    assert refused.value.hint.split() == ["tradewind", "run", "train.py"]


def test_the_job_runs_the_script_here_with_this_interpreter(here: Path) -> None:
    spec = a_spec("train.py", "--epochs", "3")
    assert (spec.launch.script, spec.launch.module) == ("train.py", None)
    assert spec.launch.args == ("--epochs", "3")
    assert spec.launch.workdir == str(here)
    assert spec.launch.python == str(Path(sys.executable).absolute())


def test_a_module_need_not_be_a_file(here: Path) -> None:
    assert a_spec("my.train", module=True).launch.module == "my.train"


def test_a_missing_script_is_answered_with_the_nearest_one(here: Path) -> None:
    with pytest.raises(UserError) as refused:
        a_spec("trian.py")
    assert "trian.py" in refused.value.message
    assert refused.value.hint.split() == ["tradewind", "run", "train.py"]


async def test_a_missing_script_is_one_sentence_at_once(tmp_path: Path) -> None:
    done = await tradewind("run", "--workers", "4", "nope.py", environ={}, cwd=tmp_path)
    assert done.code == 2
    assert "nope.py" in done.error and done.hint == ["tradewind", "run", "--help"]


def test_more_workers_at_least_than_at_most_is_refused(here: Path) -> None:
    with pytest.raises(UserError):
        a_spec(most=2, least=3)


def test_an_interpreter_that_is_not_there_is_refused() -> None:
    with pytest.raises(UserError) as refused:
        interpreter("/nowhere/python")
    assert "/nowhere/python" in refused.value.message


def test_several_ranks_on_a_machine_take_one_thread_each_unless_told_otherwise() -> None:
    assert one_thread_each(4, {}) == {"OMP_NUM_THREADS": "1"}
    assert one_thread_each(4, {"OMP_NUM_THREADS": "2"}) == {}
    assert one_thread_each(1, {}) == {}


@pytest.mark.parametrize(
    ("title", "begins"),
    [
        ("train", "train-"),
        ("My Script_2", "my-script-2-"),
        ("---", "job-"),
        ("ünïcode", "n-code-"),
        ("x" * 200, "xxxx"),
    ],
)
def test_the_jobs_name_is_always_a_name_and_always_new(title: str, begins: str) -> None:
    name = job_name(title)
    assert name.startswith(begins)
    assert is_name(name)
    assert name != job_name(title)


def test_the_jobs_name_comes_from_the_script_or_the_module(here: Path) -> None:
    assert a_spec("./train.py").name.startswith("train-")
    assert a_spec("my.package.fit", module=True).name.startswith("fit-")


def test_what_is_not_a_regular_file_is_no_script(here: Path) -> None:
    os.mkfifo(here / "pipe.py")
    for script in ("pipe.py", "/dev/zero"):
        with pytest.raises(UserError) as refused:
            a_spec(script)
        assert script in refused.value.message and "regular" in refused.value.message


def test_a_script_that_cannot_be_looked_at_is_refused_in_a_sentence(here: Path) -> None:
    (here / "circle.py").symlink_to("circle.py")
    for script, why in (("circle.py", os.strerror(errno.ELOOP)), ("x" * 300, os.strerror(errno.ENAMETOOLONG))):
        with pytest.raises(UserError) as refused:
            a_spec(script)
        assert script in refused.value.message and why in refused.value.message


def test_a_current_folder_that_was_removed_is_refused_in_a_sentence(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = here / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UserError, match="folder"):
        a_spec(str(here / "train.py"))
