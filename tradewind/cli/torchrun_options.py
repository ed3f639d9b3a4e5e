"""torchrun's other options: those with an effect, those without one, and those that are refused.

A pasted torchrun command line for one machine works. The values are stored beside those of the command's own options.
"""

import ipaddress
import socket
from collections.abc import Callable, Mapping
from enum import IntFlag
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import click
from click.core import ParameterSource

from runtime.errors import UserError
from tradewind.cli.options import Number, Whole

if TYPE_CHECKING:
    from messages.api import LogLine
    from messages.jobs import JobSpec

KEY = "tradewind.cli.torchrun_options"
SEVERAL_MACHINES = "start `tradewind cluster` on each machine, then `tradewind submit JOB.yaml`"
OWN_SIGNALS = frozenset(("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"))
"""The default list of torchrun, which has no effect."""

MEMBERSHIP = (
    "rdzv_backend",
    "rdzv_endpoint",
    "rdzv_id",
    "rdzv_conf",
    "master_addr",
    "master_port",
    "node_rank",
    "local_addr",
)
"""Options without effect: the master of the run knows its members and their rendezvous."""
NOT_APPLIED = {
    "event_log_handler": "events are printed on standard error",
    "numa_binding": "to bind processes, use: tradewind run --no-python numactl --cpunodebind=0 python train.py",
}
REFUSED = {
    "logs_specs": ("Tradewind has no plugins for logs.", "--log-dir, --tee or --redirects"),
    "duplicate_stdout_filters": ("Tradewind does not filter lines.", "tradewind run … | grep WORD"),
    "duplicate_stderr_filters": ("Tradewind does not filter lines.", "tradewind run … 2>&1 | grep WORD"),
    "virtual_local_rank": (
        "Ranks of one worker have the local ranks 0 to K-1.",
        "`--workers K` in place of `--nproc-per-node K`: LOCAL_RANK is then 0 for all of them",
    ),
}


class Std(IntFlag):
    """The streams, with torchrun's numbers."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = 3


class Streams(NamedTuple):
    """Output streams, by rank."""

    of_all: Std = Std.NONE
    by_rank: Mapping[int, Std] = MappingProxyType({})

    @classmethod
    def parsed(cls, text: str) -> Self:
        """Parses torchrun's `3`, or `0:1,1:2` for RANK:STD. Raises ValueError."""
        problem = f"{text!r} is neither 0, 1, 2, 3 nor RANK:STD,…"
        try:
            if ":" not in text:
                return cls(_std(text))
            pairs = (pair.split(":") for pair in text.split(","))
            return cls(by_rank={int(rank): _std(std) for rank, std in pairs})
        except ValueError:
            raise ValueError(problem) from None

    def has(self, line: "LogLine") -> bool:
        return bool(self.by_rank.get(line.rank, self.of_all) & (Std.ERR if line.stderr else Std.OUT))

    @property
    def any(self) -> bool:
        return self != Streams()


def _std(text: str) -> Std:
    if text not in {"0", "1", "2", "3"}:
        raise ValueError(text)
    return Std(int(text))


class Outputs(NamedTuple):
    folder: str | None = None
    tee: Streams = Streams()
    redirects: Streams = Streams()
    shown: frozenset[int] | None = None
    """Ranks whose lines are shown; None: all."""


class Given(NamedTuple):
    """The checked values of torchrun's options."""

    program: bool
    """SCRIPT is a program to execute, not Python."""
    role: str | None
    shutdown_timeout_s: int | None
    outputs: Outputs
    notes: tuple[str, ...]

    def applied_to(self, spec: "JobSpec") -> "JobSpec":
        from msgspec import structs

        env = {"ROLE_NAME": self.role} if self.role is not None else {}
        launch = structs.replace(spec.launch, env={**spec.launch.env, **env}, no_python=self.program)
        timeouts = spec.timeouts
        if self.shutdown_timeout_s is not None:
            timeouts = structs.replace(timeouts, stop_grace_s=float(self.shutdown_timeout_s))
        return structs.replace(spec, launch=launch, timeouts=timeouts)


Command = TypeVar("Command", bound=Callable[..., Any])


def torchrun_options(command: Command) -> Command:
    """Adds the options; `given_of` returns their values."""
    for option in reversed(_options()):
        command = option(command)
    return command


def given_of(context: click.Context, nodes: int, *, module: bool) -> Given:
    """The options of this call. Raises UserError if they need several machines or are refused."""
    values: Mapping[str, Any] = context.meta.get(KEY, {})
    for name, (message, instead) in REFUSED.items():
        if name in values:
            raise UserError(f"{_flag(name)} is not supported: {message}", instead)
    _check_one_machine(values, nodes)
    program = "no_python" in values and "run_path" not in values
    if program and module:
        raise UserError("--no-python and --module exclude each other.", "remove one of them")
    outputs = Outputs(
        folder=values.get("log_dir"),
        tee=values.get("tee", Streams()),
        redirects=values.get("redirects", Streams()),
        shown=values.get("local_ranks_filter"),
    )
    return Given(program, values.get("role"), values.get("shutdown_timeout"), outputs, tuple(_notes(values)))


def _check_one_machine(values: Mapping[str, Any], nodes: int) -> None:
    rank = values.get("node_rank")
    if rank and nodes == 1:
        raise UserError(f"--node-rank {rank} needs several machines; `tradewind run` uses one.", SEVERAL_MACHINES)
    if rank is not None and nodes > 1:
        raise UserError(
            f"--node-rank with --nnodes {nodes} needs several machines; `tradewind run` starts all nodes on this one.",
            f"remove --node-rank, or {SEVERAL_MACHINES}",
        )
    for name, address in (("master_addr", values.get("master_addr")), ("rdzv_endpoint", values.get("rdzv_endpoint"))):
        if nodes > 1 and address is not None and not is_here(host_of(address)):
            raise UserError(
                f"{_flag(name)} {address} is another machine; `tradewind run` starts all {nodes} nodes on this one.",
                f"remove {_flag(name)}, or {SEVERAL_MACHINES}",
            )


def host_of(address: str) -> str:
    """The address without its port: HOST, HOST:PORT, [IPV6]:PORT or IPV6."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address if address.count(":") > 1 else address.partition(":")[0]


def is_here(host: str) -> bool:
    """Whether the host is this machine. Looks up no name."""
    if host.lower() in ("", "localhost", socket.gethostname().lower()):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def _notes(values: Mapping[str, Any]) -> list[str]:
    unused = [_flag(name) for name in MEMBERSHIP if name in values]
    notes = []
    if unused:
        has = "has" if len(unused) == 1 else "have"
        notes.append(f"{', '.join(unused)} {has} no effect: the master of this run knows all its ranks")
    notes += [f"{_flag(name)} has no effect: {why}" for name, why in NOT_APPLIED.items() if name in values]
    others = {part.strip() for part in values.get("signals_to_handle", "").split(",") if part.strip()} - OWN_SIGNALS
    if others:
        notes.append(f"{', '.join(sorted(others))}: not passed to the ranks; send it to their processes")
    return notes


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
    name = parameter.name or ""
    if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
        context.meta.setdefault(KEY, {})[name] = value


class _StreamsType(click.ParamType[Streams]):
    name = "streams"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Streams:
        try:
            return value if isinstance(value, Streams) else Streams.parsed(str(value).removeprefix("="))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _RanksType(click.ParamType[frozenset[int]]):
    name = "ranks"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[int]:
        parts = str(value).split(",")
        if not all(part.strip().isdecimal() for part in parts):
            self.fail(f"{value!r} is no list of ranks, such as 0,1", param, ctx)
        return frozenset(map(int, parts))


def _options() -> list[Callable[[Command], Command]]:
    def option(*names: str, hidden: bool = True, **settings: Any) -> Callable[[Command], Command]:
        return click.option(*names, hidden=hidden, expose_value=False, callback=_keep, **settings)

    return [
        option("--role", metavar="NAME", hidden=False, show_default="default", help="ROLE_NAME of the ranks."),
        option("--no-python", is_flag=True, hidden=False, help="SCRIPT is a program, not Python."),
        option(
            "--log-dir",
            metavar="DIR",
            hidden=False,
            show_default="no files",
            help="Also write the output of ranks to DIR/JOB/RANK/stdout.log and stderr.log.",
        ),
        option(
            "-t",
            "--tee",
            type=_StreamsType(),
            metavar="STD",
            hidden=False,
            show_default="3 with --log-dir, else 0",
            help="Streams to write to files: 0 none, 1 out, 2 err, 3 both; or RANK:STD,…",
        ),
        option(
            "-r",
            "--redirects",
            type=_StreamsType(),
            metavar="STD",
            hidden=False,
            show_default="0",
            help="Streams to write to files and not to show.",
        ),
        option(
            "--local-ranks-filter",
            type=_RanksType(),
            metavar="RANKS",
            hidden=False,
            show_default="all",
            help="Ranks to show: 0,1,…",
        ),
        option(
            "--shutdown-timeout",
            type=Whole(min=0, max=3600),
            hidden=False,
            show_default="5",
            help="Seconds from SIGTERM to SIGKILL.",
        ),
        *(option(_flag(name)) for name in MEMBERSHIP if name not in ("master_port", "node_rank")),
        option("--master-port", type=Whole(min=0, max=65535)),
        option("--node-rank", type=Whole(min=0)),
        option("--monitor-interval", type=Number(min=0)),
        option("--start-method", type=click.Choice(["spawn", "fork", "forkserver"])),
        option("--run-path", is_flag=True),
        option("--event-log-handler"),
        option("--numa-binding", type=click.Choice(["node", "socket", "exclusive", "core-complex"])),
        option("--signals-to-handle"),
        *(option(_flag(name)) for name in REFUSED if name != "virtual_local_rank"),
        option("--virtual-local-rank", is_flag=True),
    ]
