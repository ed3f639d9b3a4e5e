"""What the host and its worker-agent say to each other.

The agent listens on a Unix stream socket and starts the host with `--socket PATH`; the host connects at once and says
`hello` when it is warm. Each message is one JSON object on one line, UTF-8, ended by a newline; `type` names it.
Messages are handled in the order they were sent. Unknown fields are ignored. The host sends no line longer than 1 MiB
and takes none longer than 16 MiB. Generations and ranks are integers ≥ 0; a trainer is known by (generation, rank).

Start the host in the job's environment (variables included): what Python and torch read only once, at start and at
import, they read there (PYTHONHASHSEED, TORCH_LOGS, …). TRADEWIND_GPUS is the number of GPUs that it must be able to
use, TRADEWIND_DRIVER_FOLDER the folder of their driver. TRADEWIND_PRELOAD names modules that it imports besides torch,
with commas between. A host ignores SIGTERM and SIGINT: its agent decides. When the
agent's end of the socket closes, it ends every trainer, as for `exit`, and exits.

Agent → host

    fork    {generation, trainers: [{rank, env, script | module, argv, cwd, inherit, program}, …]}
            Forks one trainer for each, in order. `env`, {name: value}, is the whole environment of the trainer; where
            `inherit` is true, it goes over the host's own: a host in a container has one that its agent cannot know.
            Exactly one of `script` (a path, relative to `cwd` if not absolute) and `module` (as for `python -m`) is a
            text, the other absent or null. `argv` holds the arguments after it, without it. `cwd` is the folder to run
            in, relative to the host's own if not absolute. Where `program` is true, `script` is executed as it is,
            without Python; without a slash in it, it is looked for in the PATH of `env`. Each trainer is answered by
            `forked` or `fork_failed`.
    stop    {generation, grace_s}
            Every trainer of this generation or a lower one: SIGTERM to its process group now, SIGKILL to the group
            `grace_s` seconds (at most a day) later if it is still there. Answered by `stopped`, at once if there is
            none.
    signal  {generation, rank, signal}
            Sends the signal ("SIGUSR1", …) to the trainer's leading process only. Not answered, unless refused.
    abort   {generation, rank, why}
            Has the trainer write its Python stacks, then SIGKILL to its process group. Its `exited` has `why` in
            `stalled` and the stacks, at most 4 KiB, in `error`. Not answered, unless refused.
    exit    {}
            Ends all trainers like `stop` with a grace of 2 s, then exits with code 0.

Host → agent

    hello        {pid, python, torch, warm_s}
                 Once, first: versions as text, and the seconds that warming up took. Commands sent before it are obeyed
                 after it. If torch cannot be imported, or too few GPUs can be used, `refused` comes instead and the
                 host exits with code 1.
    forked       {generation, rank, pid}
                 `pid` leads a session and a process group of its own.
    fork_failed  {generation, rank, error}
                 No process was left behind.
    output       {generation, rank, stream: "stdout" | "stderr", lines: [text, …]}
                 In order within a stream. No line is left out: while the agent does not read, trainers wait. Lines are
                 without their line end; what exceeds 64 KiB of a line is cut and the line says so. A carriage return
                 starts a line over, as on a terminal: such a progress bar comes as a line with its state, at most one
                 each second, and one with its last state.
    progress     {generation, rank, reports: [{step, loss | null, nonfinite, samples | null, at}, …]}
                 What the script told with `tradewind.report`, in order; `at` in Unix seconds, `loss` always finite;
                 `nonfinite`, if it is there: the loss is NaN or infinite, and `loss` is null.
    checkpointed {generation, rank}
                 The script said with `tradewind.checkpointed` that a checkpoint is complete.
    exited       {generation, rank, code | null, signal | null, tail: [text, …], error | null, peer_lost, stalled,
                  hint | null}
                 Its last message: nothing of this trainer follows, and the rest of its process group was killed. Either
                 `code` or `signal` (by name) is set. `tail` is the end of stderr, at most 4 KiB: its last
                 20 lines, or what follows the beginning of its last traceback, at most 60 lines. `error` is the message
                 in its TORCHELASTIC_ERROR_FILE. `peer_lost`: it failed because the connection to a peer or to the store
                 broke, as far as stderr shows. `stalled`: the `why` of the `abort` that ended it. `hint`: what a
                 person can do about it, where stderr shows that.
    stopped      {generation}
                 After the `exited` of every trainer that the `stop` was for.
    refused      {why, unfit}
                 A message that could not be understood or obeyed. It changed nothing. Before `hello`, the reason why
                 the host ends; `unfit` is true if the worker has not the GPUs that TRADEWIND_GPUS promises.
"""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from tradewind.protocol.lines import Count, Lines, RankNumber, Unreadable, Within
from tradewind.protocol.steps import StepReport

COMMAND_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""Longest line that a host reads."""
MESSAGE_LIMIT_BYTES: Final = 4 * 1024 * 1024
"""Longest line that an agent reads; a host sends none longer than 1 MiB."""
EXIT_GRACE_S: Final = 2.0
LONGEST_GRACE_S: Final = 86400

Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class TrainerSpec:
    """All that makes a trainer."""

    rank: RankNumber
    env: Mapping[str, str]
    argv: tuple[str, ...]
    cwd: str
    script: str | None = None
    module: str | None = None
    inherit: bool = False
    program: bool = False


@dataclass(frozen=True, slots=True)
class Fork:
    generation: Count
    trainers: tuple[TrainerSpec, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    generation: Count
    grace_s: Annotated[float, Within(0, LONGEST_GRACE_S)]


@dataclass(frozen=True, slots=True)
class Signal:
    generation: Count
    rank: RankNumber
    signal: str


@dataclass(frozen=True, slots=True)
class Abort:
    generation: Count
    rank: RankNumber
    why: str


@dataclass(frozen=True, slots=True)
class Exit:
    pass


@dataclass(frozen=True, slots=True)
class Hello:
    pid: int
    python: str
    torch: str
    warm_s: float


@dataclass(frozen=True, slots=True)
class Forked:
    generation: Count
    rank: RankNumber
    pid: int


@dataclass(frozen=True, slots=True)
class ForkFailed:
    generation: Count
    rank: RankNumber
    error: str


@dataclass(frozen=True, slots=True)
class Output:
    generation: Count
    rank: RankNumber
    stream: Stream
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    generation: Count
    rank: RankNumber
    reports: tuple[StepReport, ...]


@dataclass(frozen=True, slots=True)
class Checkpointed:
    generation: Count
    rank: RankNumber


@dataclass(frozen=True, slots=True)
class Exited:
    generation: Count
    rank: RankNumber
    code: int | None = None
    signal: str | None = None
    tail: tuple[str, ...] = ()
    error: str | None = None
    peer_lost: bool = False
    stalled: str = ""
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    generation: Count


@dataclass(frozen=True, slots=True)
class Refused:
    why: str
    unfit: bool = False


Command = Fork | Stop | Signal | Abort | Exit
HostMessage = Hello | Forked | ForkFailed | Output | Progress | Checkpointed | Exited | Stopped | Refused

_commands: Lines[Command] = Lines({"fork": Fork, "stop": Stop, "signal": Signal, "abort": Abort, "exit": Exit})
_messages: Lines[HostMessage] = Lines(
    {
        "hello": Hello,
        "forked": Forked,
        "fork_failed": ForkFailed,
        "output": Output,
        "progress": Progress,
        "checkpointed": Checkpointed,
        "exited": Exited,
        "stopped": Stopped,
        "refused": Refused,
    }
)

encode_command = _commands.encode
encode_message = _messages.encode
decode_message = _messages.decode


def decode_command(line: bytes) -> Command:
    """Raises `Unreadable`, also for a command that no host could obey."""
    if len(line) >= COMMAND_LIMIT_BYTES:
        raise Unreadable(f"longer than {COMMAND_LIMIT_BYTES} bytes")
    command = _commands.decode(line)
    match command:
        case Fork(_, trainers):
            if len({trainer.rank for trainer in trainers}) < len(trainers):
                raise Unreadable("fork.trainers: a rank is listed twice")
            for trainer in trainers:
                _check_trainer(trainer)
        case Signal(_, _, name):
            if name not in signal.Signals.__members__:
                raise Unreadable(f"signal: unknown signal {name!r:.80}, expected a name such as 'SIGUSR1'")
        case Stop() | Abort() | Exit():
            pass
    return command


def code_and_signal(exitcode: int) -> tuple[int | None, str | None]:
    """Of an exit code as Python gives it: minus the number of the signal that ended the process."""
    if exitcode >= 0:
        return exitcode, None
    try:
        return None, signal.Signals(-exitcode).name
    except ValueError:
        return None, f"SIG{-exitcode}"


def _check_trainer(trainer: TrainerSpec) -> None:
    if (trainer.script is None) == (trainer.module is None):
        raise Unreadable("fork.trainers: give either 'script' or 'module', exactly one of them")
    if trainer.program and trainer.script is None:
        raise Unreadable("fork.trainers: 'program' needs 'script'")
    for name, text in (("script", trainer.script), ("module", trainer.module), ("cwd", trainer.cwd)):
        if text is not None and (not text or not _is_plain(text)):
            raise Unreadable(f"fork.trainers.{name}: must be a text without NUL, not {text!r:.80}")
    if not all(map(_is_plain, trainer.argv)):
        raise Unreadable("fork.trainers.argv: each argument is a text without NUL")
    for name, value in trainer.env.items():
        if not name or "=" in name or not _is_plain(name) or not _is_plain(value):
            raise Unreadable(f"fork.trainers.env: {name!r:.80} and its value cannot be in an environment")


def _is_plain(value: str) -> bool:
    """Whether the system takes it as an argument, a variable or a path."""
    try:
        return b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False
