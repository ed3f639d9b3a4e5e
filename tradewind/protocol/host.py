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

import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

MESSAGE_LIMIT_BYTES: Final = 16 * 1024 * 1024
EXIT_GRACE_S: Final = 2.0
LONGEST_GRACE_S: Final = 86400

Stream = Literal["stdout", "stderr"]
Message = dict[str, object]


class Refused(ValueError):
    """The agent's message makes no sense; the text says why."""


@dataclass(frozen=True, slots=True)
class TrainerSpec:
    """All that makes a trainer."""

    generation: int
    rank: int
    env: Mapping[str, str]
    script: str | None
    module: str | None
    argv: tuple[str, ...]
    cwd: str
    inherit: bool = False
    program: bool = False


@dataclass(frozen=True, slots=True)
class Fork:
    trainers: tuple[TrainerSpec, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    generation: int
    grace_s: float


@dataclass(frozen=True, slots=True)
class Signal:
    generation: int
    rank: int
    signal: signal.Signals


@dataclass(frozen=True, slots=True)
class Abort:
    generation: int
    rank: int
    why: str


@dataclass(frozen=True, slots=True)
class Exit:
    pass


Command = Fork | Stop | Signal | Abort | Exit


def parse(line: bytes) -> Command:
    if len(line) >= MESSAGE_LIMIT_BYTES:
        raise Refused(f"longer than {MESSAGE_LIMIT_BYTES} bytes")
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Refused(f"not JSON: {error}") from error
    if not isinstance(message, dict):
        raise Refused(f"a message is a JSON object, not {line[:80]!r}")
    match message.get("type"):
        case "fork":
            return _fork(message)
        case "stop":
            return Stop(_count(message, "generation"), _seconds(message, "grace_s"))
        case "signal":
            return Signal(_count(message, "generation"), _count(message, "rank"), _signal(message))
        case "abort":
            return Abort(_count(message, "generation"), _count(message, "rank"), _text(message, "why"))
        case "exit":
            return Exit()
        case other:
            raise Refused(f"unknown type {other!r:.80}: expected fork, stop, signal, abort or exit")


def encode(message: Message) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def hello(pid: int, python: str, torch: str, warm_s: float) -> Message:
    return {"type": "hello", "pid": pid, "python": python, "torch": torch, "warm_s": round(warm_s, 3)}


def forked(generation: int, rank: int, pid: int) -> Message:
    return {"type": "forked", "generation": generation, "rank": rank, "pid": pid}


def fork_failed(generation: int, rank: int, error: str) -> Message:
    return {"type": "fork_failed", "generation": generation, "rank": rank, "error": error}


def output(generation: int, rank: int, stream: Stream, lines: Sequence[str]) -> Message:
    return {"type": "output", "generation": generation, "rank": rank, "stream": stream, "lines": lines}


def progress(generation: int, rank: int, reports: Sequence[object]) -> Message:
    return {"type": "progress", "generation": generation, "rank": rank, "reports": reports}


def checkpointed(generation: int, rank: int) -> Message:
    return {"type": "checkpointed", "generation": generation, "rank": rank}


def exited(
    generation: int,
    rank: int,
    exitcode: int,
    *,
    tail: Sequence[str],
    error: str | None,
    peer_lost: bool,
    stalled: str = "",
    hint: str | None = None,
) -> Message:
    """`exitcode` as Python gives it: minus the signal's number if a signal ended the process."""
    return {
        "type": "exited",
        "generation": generation,
        "rank": rank,
        "code": exitcode if exitcode >= 0 else None,
        "signal": _signal_name(-exitcode) if exitcode < 0 else None,
        "tail": tail,
        "error": error,
        "peer_lost": peer_lost,
        "stalled": stalled,
        "hint": hint,
    }


def stopped(generation: int) -> Message:
    return {"type": "stopped", "generation": generation}


def refused(why: str, *, unfit: bool = False) -> Message:
    return {"type": "refused", "why": why, "unfit": unfit}


def _fork(message: Mapping[str, object]) -> Fork:
    generation = _count(message, "generation")
    trainers = _field(message, "trainers", list)
    specs = tuple(_trainer(generation, trainer) for trainer in trainers)
    if len({spec.rank for spec in specs}) < len(specs):
        raise Refused("fork.trainers: a rank is listed twice")
    return Fork(specs)


def _trainer(generation: int, trainer: object) -> TrainerSpec:
    if not isinstance(trainer, dict):
        raise Refused("fork.trainers: each is a JSON object")
    script, module = (_text(trainer, name) if trainer.get(name) is not None else None for name in ("script", "module"))
    if (script is None) == (module is None):
        raise Refused("fork.trainers: give either 'script' or 'module', exactly one of them")
    return TrainerSpec(
        generation=generation,
        rank=_count(trainer, "rank"),
        env=_environment(trainer),
        script=script,
        module=module,
        argv=_arguments(trainer),
        cwd=_text(trainer, "cwd"),
        inherit=trainer.get("inherit") is True,
        program=_program(trainer, script),
    )


def _program(trainer: Mapping[str, object], script: str | None) -> bool:
    if trainer.get("program") is True and script is None:
        raise Refused("fork.trainers: 'program' needs 'script'")
    return trainer.get("program") is True


def _environment(trainer: Mapping[str, object]) -> Mapping[str, str]:
    env = _field(trainer, "env", dict)
    for name, value in env.items():
        if not name or "=" in name or not _is_plain(name) or not _is_plain(value):
            raise Refused(f"fork.trainers.env: {name!r:.80} and its value cannot be in an environment")
    return env


def _arguments(trainer: Mapping[str, object]) -> tuple[str, ...]:
    argv = _field(trainer, "argv", list)
    if not all(map(_is_plain, argv)):
        raise Refused("fork.trainers.argv: each argument is a text without NUL")
    return tuple(argv)


def _signal(message: Mapping[str, object]) -> signal.Signals:
    name = _text(message, "signal")
    try:
        return signal.Signals[name]
    except KeyError as error:
        raise Refused(f"signal: unknown signal {name!r:.80}, expected a name such as 'SIGUSR1'") from error


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _count(message: Mapping[str, object], name: str) -> int:
    value = _field(message, name, int)
    if isinstance(value, bool) or value < 0:
        raise Refused(f"'{name}' must be an integer ≥ 0, not {value}")
    return value


def _seconds(message: Mapping[str, object], name: str) -> float:
    value = message.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_GRACE_S:
        raise Refused(f"'{name}' must be a number of seconds from 0 to {LONGEST_GRACE_S}, not {value!r:.80}")
    return float(value)


def _text(message: Mapping[str, object], name: str) -> str:
    value = _field(message, name, str)
    if not value or not _is_plain(value):
        raise Refused(f"'{name}' must be a text without NUL, not {value!r:.80}")
    return value


def _is_plain(value: object) -> bool:
    """Whether the system takes it as an argument, a variable or a path."""
    try:
        return isinstance(value, str) and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


Kind = TypeVar("Kind")


def _field(message: Mapping[str, object], name: str, kind: type[Kind]) -> Kind:
    value = message.get(name)
    if not isinstance(value, kind):
        raise Refused(f"'{name}' must be of type {kind.__name__}, not {value!r:.80}")
    return value
