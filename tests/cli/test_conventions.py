"""Rules that all commands follow. Each test reads the commands from the group, so a new command is tested too."""

import ast
import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from agents.cluster.settings import ClusterSettings
from agents.worker.settings import WorkerSettings
from controlplane.master.settings import MasterSettings
from messages.api import EventLine
from runtime import exit_codes
from runtime.errors import TradewindError
from runtime.setting_option import SettingOption
from simulator.cloud.settings import CloudSettings
from simulator.main import Parts
from simulator.region.settings import RegionSettings
from tests.cli.builders import a_job_file, no_master, some_lines
from tests.cli.command import Outcome, tradewind
from tests.cli.fake_master import FakeMaster, a_view
from tests.conftest import eventually
from tests.reaper.ground import FLEET, a_ground
from tradewind import cli
from tradewind.cli import COMMANDS, SECTIONS, commands
from tradewind.cli import submit as submitting
from tradewind.cli.failures import USAGE

PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
NEW_JOB = "{name: new, launch: {script: train.py}, workers: {max: 2}}"
NO_FACTS = {"run", "completion", *SECTIONS["Processes"]}
"""Commands that print no facts: what a script prints, a completion script, and logs of processes."""
STARTS_A_STACK = {"demo"}
SETTINGS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "master": (MasterSettings,),
    "cluster": (ClusterSettings,),
    "worker": (WorkerSettings,),
    "simulator": (CloudSettings, Parts, RegionSettings),
}
COMPUTED = {"run_dir", "node", "uid", "python", "job", "regions", "region_port", "region_run_dir", "public_url"}
"""Settings whose default is computed or comes from elsewhere: help describes it."""
CONTEXT = click.Context(commands, info_name="tradewind")
CODES = {0} | {code for name, code in vars(exit_codes).items() if name.startswith("EXIT_")}


def command(name: str) -> click.Command:
    found = commands.get_command(CONTEXT, name)
    assert found is not None
    return found


def options(name: str) -> list[click.Option]:
    return [each for each in command(name).params if isinstance(each, click.Option) and not each.hidden]


def has(name: str, option: str) -> bool:
    return any(option in each.opts for each in options(name))


FACTS = [name for name in COMMANDS if name not in NO_FACTS]
ASK = [name for name in FACTS if name not in STARTS_A_STACK]
STREAMS = [name for name in COMMANDS if has(name, "--tail") or has(name, "--follow")]


Given = Callable[[str], list[str]]


@pytest.fixture
async def given(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Given]:
    """Gives valid values of all required parameters of a command; `reap` also gets a cloud."""
    async with AsyncExitStack() as stack:
        options: list[str] = []
        if request.node.callspec.params["name"] == "reap":
            ground = await stack.enter_async_context(a_ground(tmp_path))
            options = ["--fleet", str(ground.fleet_file)]
        values = {"job": "mnist", "workers": "3", "jobfile": a_job_file(tmp_path, NEW_JOB)}

        def arguments(name: str) -> list[str]:
            parameters = [each for each in command(name).params if isinstance(each, click.Argument)]
            named = [each.name or "" for each in parameters if each.required or each.name == "job"]
            return [*(values[each] for each in named), *options]

        yield arguments


@pytest.fixture
async def busy(master: FakeMaster, monkeypatch: pytest.MonkeyPatch) -> FakeMaster:
    """A master with an ended job that has printed lines and has events."""
    monkeypatch.setattr(submitting, "START_S", 0.1)
    master.views["mnist"] = a_view("mnist", "succeeded")
    master.lines, master.fleet = some_lines(), FLEET
    kinds = ("job_submitted", "world_decided", "job_succeeded")
    master.events = [EventLine(float(at), "mnist", kind, kind, "a reason") for at, kind in enumerate(kinds)]
    return master


def answered(done: Outcome) -> list[Any]:
    """The JSON of a command that prints nothing else on standard output."""
    return [json.loads(line) for line in done.out.splitlines()]


def error_of(done: Outcome) -> dict[str, Any]:
    assert done.out == ""
    error = json.loads(done.err.splitlines()[-1])
    assert error["kind"] and error["message"]
    return dict(error)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_prints_facts_has_json(name: str) -> None:
    assert has(name, "--json") == (name not in NO_FACTS)


@pytest.mark.parametrize("name", FACTS)
async def test_a_wrong_use_with_json_is_one_object_and_code_2(name: str) -> None:
    done = await tradewind(name, "--no-such-option", "--json", environ=no_master())
    error = error_of(done)
    assert (done.code, error["kind"]) == (exit_codes.EXIT_USER_ERROR, USAGE)
    assert "--no-such-option" in error["message"]
    assert error["next"] == f"tradewind {name} --help"


@pytest.mark.parametrize("name", COMMANDS)
async def test_a_wrong_use_without_json_is_text_and_code_2(name: str) -> None:
    done = await tradewind(name, "--no-such-option", environ=no_master())
    assert (done.code, done.out) == (exit_codes.EXIT_USER_ERROR, "")
    assert "--no-such-option" in done.err and not done.err.startswith("{")


@pytest.mark.parametrize("name", ASK)
async def test_a_command_without_a_master_answers_or_has_code_3(name: str, busy: FakeMaster, given: Given) -> None:
    done = await tradewind(name, *given(name), "--json", environ=no_master())
    if done.code == 0:
        assert name in {"offers", "plan"} and answered(done)
    else:
        assert done.code == exit_codes.EXIT_UNREACHABLE
        assert error_of(done)["next"]


@pytest.mark.parametrize("name", ASK)
async def test_with_json_standard_output_has_only_json(name: str, busy: FakeMaster, given: Given) -> None:
    done = await tradewind(name, *given(name), "--json", environ=busy.environ)
    assert (done.code, hints(done.err)) == (0, [])
    assert answered(done)


def hints(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.match(r"\s*(Next|Try): ", line)]


@pytest.mark.parametrize("name", ASK)
async def test_hints_go_to_standard_error(name: str, busy: FakeMaster, given: Given) -> None:
    done = await tradewind(name, *given(name), environ=busy.environ)
    assert hints(done.out) == []
    assert done.code == 0


async def test_a_refusal_of_the_demonstration_is_json_too() -> None:
    done = await tradewind("demo", "--seconds", "1", "--json", environ={})
    assert (done.code, error_of(done)["kind"]) == (exit_codes.EXIT_USER_ERROR, "wrong_use")


async def test_problems_have_their_places(tmp_path: Path) -> None:
    file = a_job_file(tmp_path, "{name: mnist, launch: {script: a.py}, workers: {max: two}}")
    problems = error_of(await tradewind("submit", file, "--json", environ=no_master()))["problems"]
    assert [problem["place"] for problem in problems] == ["workers.max"]


# --tail and --follow


def test_tail_and_follow_come_together() -> None:
    assert STREAMS
    assert all(has(name, "--tail") and has(name, "--follow") for name in STREAMS)


@pytest.mark.parametrize(
    ("tail", "shown"), [((), 3), (("--tail", "1"), 1), (("--tail", "0"), 0), (("--tail", "9"), 3)], ids=str
)
@pytest.mark.parametrize("follow", [(), ("--follow",), ("-f",)], ids=str)
@pytest.mark.parametrize("name", STREAMS)
async def test_tail_and_follow_mean_the_same(
    name: str, follow: tuple[str, ...], tail: tuple[str, ...], shown: int, busy: FakeMaster
) -> None:
    """An ended job shows all lines, or the last N; with --follow the command ends too."""
    every = answered(await tradewind(name, "mnist", "--json", environ=busy.environ))
    done = await tradewind(name, "mnist", *follow, *tail, "--json", environ=busy.environ)
    assert (done.code, answered(done)) == (0, every[len(every) - shown :])


@pytest.mark.parametrize("name", STREAMS)
async def test_follow_after_a_tail_shows_what_is_new(name: str, busy: FakeMaster) -> None:
    busy.views["mnist"] = a_view()
    running = asyncio.create_task(tradewind(name, "mnist", "-f", "--tail", "0", "--json", environ=busy.environ))
    await eventually(lambda: busy.streams)
    await asyncio.sleep(0.1)
    busy.lines += [msgspec.structs.replace(busy.lines[0], at=9.0, line="new")]
    busy.end("mnist", "stopped")
    done = await running
    assert len(answered(done)) == 1


# Help


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_the_default_of_every_option(name: str) -> None:
    """A flag without an opposite is off by default, and needs no text."""
    context = click.Context(command(name), parent=CONTEXT, info_name=name, show_default=True)
    for option in options(name):
        if (option.is_flag and not option.secondary_opts) or option.name == "help":
            assert not option.get_default(context), option.name
            continue
        extra = option.get_help_extra(context)
        assert extra.get("default") or extra.get("required"), option.name


@pytest.mark.parametrize("name", COMMANDS)
async def test_help_shows_the_variable_of_every_option_that_has_one(name: str) -> None:
    context = click.Context(command(name), parent=CONTEXT, info_name=name)
    shown = " ".join((await tradewind(name, "--help", environ={})).out.split()).replace("- ", "-")
    for option in options(name):
        variables = [option.envvar] if isinstance(option.envvar, str) else [*(option.envvar or ())]
        assert option.get_help_extra(context).get("envvars", ()) == tuple(variables)
        assert all(variable in shown for variable in variables)


@pytest.mark.parametrize("name", SECTIONS["Processes"])
def test_options_of_processes_name_settings_and_their_defaults(name: str) -> None:
    context = click.Context(command(name), parent=CONTEXT, info_name=name)
    defaults = {field.name: field.default for kind in SETTINGS[name] for field in msgspec.structs.fields(kind)}
    for option in options(name):
        assert isinstance(option, SettingOption)
        field = option.name or ""
        if field in COMPUTED or field == "nats_url":
            continue
        default = defaults[field.removeprefix("region_") if field not in defaults else field]
        shown = option.get_help_extra(context)["default"]
        if isinstance(default, bool):
            flags = [each.lstrip("-") for each in (option.opts if default else option.secondary_opts)]
            assert [shown] == flags
        elif isinstance(default, int | float):
            assert float(shown) == default
        elif default:
            assert shown == default


# The page


def test_the_page_and_the_help_have_every_exit_code() -> None:
    rows = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert rows == CODES
    help_text = commands.get_help(CONTEXT)
    listed = {int(code) for code in re.findall(r"\b(\d+)\b", help_text.partition("Exit codes:")[2])}
    assert listed == CODES


def test_the_page_has_every_kind_of_error() -> None:
    from tradewind.cli import live_jobs as _live_jobs
    from tradewind.client import errors as _client
    from tradewind.local import parts as _parts

    assert _client and _live_jobs and _parts
    kinds = {USAGE, *(kind for each in subclasses(TradewindError) if (kind := each.kind))}
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == kinds


def subclasses(kind: type[TradewindError]) -> set[type[TradewindError]]:
    return {kind, *(each for direct in kind.__subclasses__() for each in subclasses(direct))}


def test_the_page_lists_the_commands_without_json() -> None:
    (sentence,) = re.findall(r"^Commands without `--json`: (.*?)\.$", PAGE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", sentence)) == NO_FACTS


@pytest.mark.parametrize("file", sorted(Path(cli.__file__).parent.glob("*.py")), ids=lambda file: file.stem)
def test_no_command_invents_an_exit_code(file: Path) -> None:
    """Exit codes other than 0 come from `runtime/exit_codes.py`, a job or an error, never from a number."""
    for node in ast.walk(ast.parse(file.read_text())):
        values: list[ast.expr | None] = []
        if isinstance(node, ast.Return):
            values = [node.value]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"sys.exit", "exit", "os._exit", "leave"}:
            values = [*node.args]
        numbers = [each.value for each in values if isinstance(each, ast.Constant) and type(each.value) is int]
        assert not any(numbers), f"{file.name}: {numbers}"
