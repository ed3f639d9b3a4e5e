"""The protocol between the host and its worker-agent.

The agent listens on a Unix stream socket. The host is started with `--socket PATH`, by the agent or in another
container of the pod. It connects, and sends `hello` when it is ready. Each message is one JSON object on one line, in
UTF-8, whose `type` names the message. Each side handles messages in order and ignores unknown fields. The host sends no
line longer than 1 MiB and reads none longer than 16 MiB. Generations and ranks are integers ≥ 0; (generation, rank)
identifies a trainer.

Start the host in the job's environment (variables included): Python and torch read some variables only once, at start
and at import (PYTHONHASHSEED, TORCH_LOGS, …). TRADEWIND_GPUS is the number of GPUs that the host must be able to use,
TRADEWIND_DRIVER_FOLDER the folder of their driver. TRADEWIND_PRELOAD has the names of modules that it imports besides
torch, separated by commas. A host ignores SIGTERM and SIGINT: its agent decides. When the agent's end of the socket
closes, the host ends every trainer, as for `exit`, and exits.

Agent → host

    fork    {generation, trainers: [{rank, env, script | module, argv, cwd, inherit, program}, …]}
            Forks these trainers, in order. `env`, {name: value}, is the whole environment of the trainer. With
            `inherit`, it is added to the host's own: an agent cannot know the environment of a host in a container.
            Exactly one of `script` (a path, relative to `cwd` if not absolute) and `module` (as for `python -m`) is a
            string, the other is absent or null. `argv` has the arguments after the script or module. `cwd` is the
            folder to run in, relative to the host's own if not absolute. With `program`, the host executes `script`
            itself, without Python; if it has no slash, the host searches the PATH of `env` for it. The answer for each
            trainer is `forked` or `fork_failed`.
    stop    {generation, grace_s}
            Stops every trainer of this generation or a lower one: SIGTERM to its process group now, SIGKILL to the
            group `grace_s` seconds (at most a day) later if it still runs. The answer is `stopped`, at once if there is
            no such trainer.
    abort   {generation, rank, why}
            Makes the trainer write its Python stacks, then sends SIGKILL to its process group. `why` is not empty. The
            trainer's `exited` has `why` in `stalled` and the stacks in `error`. There is no answer, except `refused`.
    exit    {}
            Ends all trainers like `stop` with a grace of 2 s, then exits with code 0.

Host → agent

    hello        {pid, python, torch, warm_s}
                 The first message, sent once. `python` and `torch` are their versions, `warm_s` is how many seconds the
                 host took to import modules. The host reads commands only after `hello`; earlier commands wait. If the
                 host cannot import torch, or cannot use enough GPUs, it sends `refused` instead and exits with code 1.
    forked       {generation, rank, pid}
                 `pid` leads its own session and process group.
    fork_failed  {generation, rank, error}
                 No process was left behind.
    output       {generation, rank, stream: "stdout" | "stderr", lines: [text, …]}
                 Lines in order within a stream. No line is lost: while the agent does not read, trainers wait. Lines
                 have no line end; a line above 64 KiB is cut and gets a note. A carriage return starts the line again,
                 as on a terminal. The host sends the current text of such a progress bar at most once a second, and its
                 last text.
    progress     {generation, rank, reports: [{step, loss | null, nonfinite, samples | null, at}, …]}
                 The script's calls of `tradewind.report`, in order; `at` is in Unix seconds, `loss` is finite. With
                 `nonfinite`, the loss is NaN or infinite, and `loss` is null.
    checkpointed {generation, rank}
                 The script reported with `tradewind.checkpointed` that a checkpoint is complete.
    exited       {generation, rank, code | null, signal | null, tail: [text, …], error | null, peer_lost, stalled,
                  hint | null}
                 The last message of this trainer; the rest of its process group was killed. Either `code` or `signal`
                 (by name) is set. `tail` is the end of stderr, at most 4 KiB: its last 20 lines, or its last traceback
                 and what follows, at most 60 lines. `stalled` is the `why` of an `abort` of this trainer, empty if none
                 came. `error` has at most 4096 characters: the message in TORCHELASTIC_ERROR_FILE, or after an `abort`
                 the Python stacks. `peer_lost` is true if the trainer failed without an `abort` and stderr shows that
                 its connection to a peer or to the store broke. `hint` is advice for people, if `code` is above 0 and
                 stderr shows the cause.
    stopped      {generation}
                 Follows the `exited` of every trainer that the `stop` ended.
    refused      {why, unfit}
                 The host could not understand or obey a message, which changed nothing. Before `hello`, it is the
                 reason why the host ends; `unfit` is true if the worker lacks the GPUs that TRADEWIND_GPUS requires.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, assert_never

from tradewind.protocol.lines import Count, Lines, RankNumber, Unreadable, Within
from tradewind.protocol.steps import StepReport

COMMAND_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""Longest line that a host reads."""
MESSAGE_LIMIT_BYTES: Final = 4 * 1024 * 1024
"""Longest line that an agent reads; a host sends none longer than 1 MiB."""
EXIT_GRACE_S: Final = 2.0
"""Seconds from SIGTERM to SIGKILL of the trainers that still run when the host exits."""
LONGEST_GRACE_S: Final = 86400
"""Most seconds from SIGTERM to SIGKILL that a `stop` may request."""

Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class TrainerSpec:
    """The description of a trainer to fork."""

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


Command = Fork | Stop | Abort | Exit
HostMessage = Hello | Forked | ForkFailed | Output | Progress | Checkpointed | Exited | Stopped | Refused

_commands: Lines[Command] = Lines({"fork": Fork, "stop": Stop, "abort": Abort, "exit": Exit})
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
    """Decodes a command. Raises `Unreadable` if the line is no command, or if no host could obey the command."""
    if len(line) >= COMMAND_LIMIT_BYTES:
        raise Unreadable(f"longer than {COMMAND_LIMIT_BYTES} bytes")
    command = _commands.decode(line)
    match command:
        case Fork(_, trainers):
            if len({trainer.rank for trainer in trainers}) < len(trainers):
                raise Unreadable("fork.trainers: each rank must be listed once")
            for trainer in trainers:
                _check_trainer(trainer)
        case Abort(why=""):
            raise Unreadable("abort.why: must not be empty")
        case Stop() | Abort() | Exit():
            pass
        case _:
            assert_never(command)
    return command


def installed_host() -> Path | None:
    """Returns the path of the installed host's `__main__.py`; None if there is none. The job's interpreter runs it."""
    file = Path(__file__).parents[1] / "host" / "__main__.py"
    return file if file.is_file() else None


def _check_trainer(trainer: TrainerSpec) -> None:
    if (trainer.script is None) == (trainer.module is None):
        raise Unreadable("fork.trainers: set exactly one of 'script' and 'module'")
    if trainer.program and trainer.script is None:
        raise Unreadable("fork.trainers: 'program' needs 'script'")
    for name, text in (("script", trainer.script), ("module", trainer.module), ("cwd", trainer.cwd)):
        if text is not None and (not text or not _is_plain(text)):
            wanted = "non-empty text that the system can encode, without NUL"
            raise Unreadable(f"fork.trainers.{name}: must be {wanted}, not {text!r:.80}")
    if not all(map(_is_plain, trainer.argv)):
        raise Unreadable("fork.trainers.argv: each argument must be text that the system can encode, without NUL")
    for name, value in trainer.env.items():
        if not name or "=" in name or not _is_plain(name) or not _is_plain(value):
            raise Unreadable(f"fork.trainers.env: an environment cannot contain {name!r:.80} with its value")


def _is_plain(value: str) -> bool:
    """True if the system can encode the text and it has no NUL, as arguments, variables and paths require."""
    try:
        return b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False
