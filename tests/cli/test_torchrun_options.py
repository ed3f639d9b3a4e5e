"""torchrun's options under `tradewind run`: each means the same, has no effect, or is refused with what to use."""

import re
import socket
from pathlib import Path
from typing import Any

import click
import pytest

from messages.api import LogLine
from messages.ids import Generation, Rank
from messages.jobs import JobSpec
from runtime.errors import UserError
from tests.cli.command import tradewind_process as tradewind
from tests.e2e.traces import a_mark, nothing_is_left
from tradewind.cli.local_commands import run
from tradewind.cli.rank_logs import RankLogs
from tradewind.cli.run import spec_of
from tradewind.cli.torchrun_options import Given, Outputs, Std, Streams, given_of, host_of, is_here

PASTED = [
    ["--rdzv-backend", "c10d"],
    ["--rdzv-endpoint", "localhost:0"],
    ["--rdzv-endpoint", "gpu-17.example.org:29400"],
    ["--rdzv-id", "123"],
    ["--rdzv-conf", "timeout=900,is_host=1"],
    ["--master-addr", "10.9.8.7"],
    ["--master-port", "29500"],
    ["--node-rank", "0"],
    ["--local-addr", "10.9.8.7"],
]
SILENT = [
    ["--nnodes", "1"],
    ["--nnodes", "1:4"],
    ["--nproc-per-node", "2"],
    ["--standalone"],
    ["--max-restarts", "3"],
    ["--monitor-interval", "0.5"],
    ["--start-method", "spawn"],
    ["--run-path"],
    ["--no-python"],
    ["--role", "trainer"],
    ["--module"],
    ["-m"],
    ["--log-dir", "logs"],
    ["--tee", "3"],
    ["-t", "0:1,1:2"],
    ["--redirects", "3"],
    ["-r", "1"],
    ["--local-ranks-filter", "0,1"],
    ["--shutdown-timeout", "60"],
    ["--signals-to-handle", "SIGTERM,SIGINT"],
]
NOTED = [["--event-log-handler", "console"], ["--numa-binding", "node"], ["--signals-to-handle", "SIGTERM,SIGUSR1"]]
REFUSED = [
    ["--logs-specs", "mine"],
    ["--duplicate-stdout-filters", "apple,orange"],
    ["--duplicate-stderr-filters", "apple"],
    ["--virtual-local-rank"],
]


def given(*arguments: str) -> Given:
    context = run.make_context("run", [*arguments, "train.py"])
    return given_of(context, context.params["workers"].most, module=context.params["module"])


def spellings(option: list[str]) -> list[list[str]]:
    """With dashes or underscores, the value behind a blank or behind `=`."""
    flag, *value = option
    names = [flag] if flag.startswith("--") is False else [flag, "--" + flag[2:].replace("-", "_")]
    spelled = [[name, *value] for name in names]
    return spelled + [[f"{name}={value[0]}"] for name in names if value]


@pytest.mark.parametrize("option", PASTED, ids=" ".join)
def test_what_the_master_knows_by_itself_is_accepted_with_a_note(option: list[str]) -> None:
    for spelled in spellings(option):
        [note] = given(*spelled).notes
        assert note.split()[0] == option[0]


@pytest.mark.parametrize("option", SILENT, ids=" ".join)
def test_what_means_the_same_here_is_accepted_without_a_note(option: list[str]) -> None:
    for spelled in spellings(option):
        assert given(*spelled).notes == ()


@pytest.mark.parametrize("option", NOTED, ids=" ".join)
def test_what_is_not_applied_is_said(option: list[str]) -> None:
    for spelled in spellings(option):
        assert len(given(*spelled).notes) == 1


@pytest.mark.parametrize("option", REFUSED, ids=" ".join)
def test_what_is_refused_says_what_to_use_instead(option: list[str]) -> None:
    for spelled in spellings(option):
        with pytest.raises(UserError) as refused:
            given(*spelled)
        assert refused.value.message.startswith(f"{option[0]} is not ")
        assert refused.value.hint


def test_several_notes_on_the_same_are_one() -> None:
    pasted = given("--nnodes=1", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:29400", "--rdzv_id=7")
    [note] = pasted.notes
    assert re.findall(r"--[a-z-]+", note) == ["--rdzv-backend", "--rdzv-endpoint", "--rdzv-id"]


@pytest.mark.parametrize(
    "several",
    [
        ["--node-rank", "1"],
        ["--nnodes", "2", "--node-rank", "0"],
        ["--nnodes", "2", "--node-rank", "1", "--master-addr", "10.9.8.7"],
        ["--nnodes", "2", "--master-addr", "gpu-17.example.org"],
        ["--nnodes", "1:4", "--rdzv-backend", "c10d", "--rdzv-endpoint", "gpu-17.example.org:29400"],
    ],
    ids=" ".join,
)
def test_one_of_several_machines_is_refused_with_what_to_use(several: list[str]) -> None:
    with pytest.raises(UserError) as refused:
        given(*several)
    assert "tradewind submit" in refused.value.hint


@pytest.mark.parametrize(
    ("address", "host"),
    [("a.b:1", "a.b"), ("a.b", "a.b"), ("[::1]:29400", "::1"), ("::1", "::1"), ("10.0.0.1:80", "10.0.0.1"), ("", "")],
)
def test_the_host_of_an_address(address: str, host: str) -> None:
    assert host_of(address) == host


def test_this_machine_is_known_by_its_names_and_addresses() -> None:
    assert all(map(is_here, ("localhost", "127.0.0.1", "127.0.0.7", "0.0.0.0", socket.gethostname())))
    assert not any(map(is_here, ("gpu-17.example.org", "192.0.2.1", "2001:db8::1")))


def test_several_nodes_that_meet_on_this_machine_are_workers_here() -> None:
    assert given("--nnodes", "2:4", "--rdzv-endpoint", "localhost:29400").notes


def a_spec(script: str, *, program: bool) -> JobSpec:
    return spec_of(
        script,
        ("-c", "true"),
        module=False,
        python=None,
        most=1,
        least=1,
        ranks=1,
        failures=0,
        environ={},
        program=program,
    )


def test_a_role_a_program_and_a_grace_become_part_of_the_job() -> None:
    asked = given("--role", "eval", "--no-python", "--shutdown-timeout", "60")
    spec = asked.applied_to(a_spec("sh", program=asked.program))
    assert (spec.launch.script, spec.launch.args, spec.launch.no_python) == ("sh", ("-c", "true"), True)
    assert (spec.launch.env["ROLE_NAME"], spec.timeouts.stop_grace_s) == ("eval", 60.0)


def test_a_program_that_is_not_there_or_not_executable_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.sh").touch()
    with pytest.raises(UserError) as refused:
        a_spec(str(tmp_path / "train.sh"), program=True)
    assert refused.value.hint == f"chmod +x {tmp_path / 'train.sh'}"
    with pytest.raises(UserError) as refused:
        a_spec("./nope.sh", program=True)
    assert "./nope.sh" in refused.value.message


def test_run_path_goes_before_no_python_as_with_torchrun() -> None:
    assert not given("--run-path", "--no-python").program


def test_a_program_is_no_module() -> None:
    with pytest.raises(UserError):
        given("--no-python", "-m")


@pytest.mark.parametrize("value", ["4", "-1", "all", "0:4", "0:", ":1", "0:1,"])
def test_streams_that_are_none_are_refused(value: str) -> None:
    with pytest.raises(click.BadParameter):
        given(f"--tee={value}")


def test_streams_are_those_of_torchrun() -> None:
    assert Streams.parsed("3") == Streams(Std.ALL)
    assert Streams.parsed("0:1,2:3") == Streams(by_rank={0: Std.OUT, 2: Std.ALL})
    assert given("-t=3").outputs.tee == Streams(Std.ALL)


def a_line(rank: int, text: str, *, stderr: bool = False) -> LogLine:
    return LogLine(at=1.0, rank=Rank(rank), generation=Generation(1), line=text, stderr=stderr)


def written(folder: Path) -> dict[str, str]:
    return {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*.log")}


@pytest.mark.parametrize(
    ("outputs", "files", "shown"),
    [
        ({}, {}, "[0] a\n[1] b\n[0] c\n"),
        (
            {"folder": True},
            {"0/stdout.log": "a\n", "1/stdout.log": "b\n", "0/stderr.log": "c\n"},
            "[0] a\n[1] b\n[0] c\n",
        ),
        ({"folder": True, "tee": Streams.parsed("0:2")}, {"0/stderr.log": "c\n"}, "[0] a\n[1] b\n[0] c\n"),
        (
            {"folder": True, "redirects": Streams.parsed("1")},
            {"0/stdout.log": "a\n", "1/stdout.log": "b\n"},
            "[0] c\n",
        ),
        ({"shown": frozenset({1})}, {}, "[1] b\n"),
    ],
)
def test_lines_go_to_files_and_to_the_terminal_as_asked(
    outputs: dict[str, Any], files: dict[str, str], shown: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = {"folder": str(tmp_path / "logs")} if outputs.get("folder") else {}
    with RankLogs(Outputs(**{**outputs, **folder}), "job-1") as logs:
        for line in (a_line(0, "a"), a_line(1, "b"), a_line(0, "c", stderr=True)):
            logs.take(line)
    assert written(tmp_path) == {f"logs/job-1/{name}": text for name, text in files.items()}
    said = capfd.readouterr()
    assert said.out + said.err == shown


def test_a_folder_for_logs_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError) as refused:
        RankLogs(Outputs(folder=str(tmp_path / "file")), "job-1")
    assert "--log-dir" in refused.value.message


@pytest.mark.parametrize("device", ["full", None])
def test_files_that_cannot_be_written_are_told_once_and_the_lines_are_shown(
    device: str | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "job-1"
    folder.mkdir()
    if device is None:
        (folder / "0").touch()
    else:
        (folder / "0").mkdir()
        (folder / "0" / "stdout.log").symlink_to(f"/dev/{device}")
    with RankLogs(Outputs(folder=str(tmp_path), redirects=Streams(Std.ALL)), "job-1") as logs:
        for line in (a_line(1, "a"), a_line(0, "b"), a_line(1, "c")):
            logs.take(line)
    assert written(folder / "1") == {"stdout.log": "a\n"}
    said = capfd.readouterr()
    assert said.out == "[0] b\n[1] c\n"
    assert said.err.count("cannot write") == 1


@pytest.mark.slow
def test_every_option_of_torchrun_is_known() -> None:
    from torch.distributed.run import get_args_parser

    known = {name for parameter in run.params for name in parameter.opts} | {"-h", "--help"}
    theirs = {name.replace("_", "-") for action in get_args_parser()._actions for name in action.option_strings}
    assert theirs - known == set()


@pytest.mark.slow
@pytest.mark.usefixtures("without_torch")
async def test_a_torchrun_command_line_runs_a_program_with_files_for_its_ranks(tmp_path: Path) -> None:
    mark = a_mark()
    (tmp_path / "train.sh").write_text('#!/bin/sh\necho "role $ROLE_NAME rank $RANK $1"\necho problem >&2\n')
    (tmp_path / "train.sh").chmod(0o755)
    pasted = "--nnodes=1 --nproc_per_node=2 --rdzv_backend=c10d --rdzv_endpoint=localhost:0 --max_restarts=0"
    ours = "--role=eval --no_python --log_dir=logs --tee=3 --redirects=2 --local_ranks_filter=1"
    done = await tradewind("run", *pasted.split(), *ours.split(), "./train.sh", "--x", environ=mark, cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.out == "[1] role eval rank 1 --x\n"
    assert "] problem" not in done.err
    assert done.says("tradewind: ", "--rdzv-backend", "--rdzv-endpoint")
    [job] = (tmp_path / "logs").iterdir()
    assert written(job) == {
        f"{rank}/{name}": text
        for rank in (0, 1)
        for name, text in (("stdout.log", f"role eval rank {rank} --x\n"), ("stderr.log", "problem\n"))
    }
    await nothing_is_left(mark)
