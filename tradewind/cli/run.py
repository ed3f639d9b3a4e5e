"""`tradewind run`: replaces torchrun on one machine, and starts everything that it needs."""

import asyncio
import contextlib
import difflib
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from agents.cluster.machine import machine_gpus
from agents.cluster.settings import ClusterSettings
from messages.api import LogLine
from messages.jobs import Failures, JobSpec, Launch, Workers
from runtime.errors import TradewindError, UserError
from runtime.paths import current_folder, expanded
from runtime.process import Stop
from runtime.process import run as run_process
from runtime.settings import read_settings
from runtime.waiting import first_of
from tradewind.cli.rank_logs import RankLogs
from tradewind.cli.stop import checkpoint_text, waiting_text
from tradewind.cli.torchrun_options import Outputs
from tradewind.client.api import Api
from tradewind.client.errors import MasterAway
from tradewind.client.watch import Watch
from tradewind.local.stack import local_stack
from tradewind.terminal import output
from tradewind.terminal.foreground import quiet_logs, unless_stopped

STOP_S = 10.0
"""Seconds beyond the grace of its trainers in which an interrupted job must end by itself."""
POLL_S = 0.2
QUIET_S = 2.0
"""Seconds without a world after which the command prints what the job waits for."""


class RestartOptions(NamedTuple):
    """Options for restarts of scripts without the SDK."""

    restart_args: tuple[str, ...] = ()
    checkpoint_path: str | None = None
    preload: tuple[str, ...] = ()


NO_RESTART_OPTIONS = RestartOptions()


def run_here(spec: JobSpec, environ: Mapping[str, str], outputs: Outputs) -> int:
    quiet_logs()
    gpus = machine_gpus(read_settings(ClusterSettings, environ).gpus, environ)
    warning = gpu_warning(spec.workers.max, spec.workers.ranks, len(gpus))
    if warning is not None:
        output.say(warning)
    with RankLogs(outputs, spec.name) as logs:
        if logs.folder is not None:
            output.say(f"the ranks' output is also in {logs.folder}")
        return run_process(lambda stop: LocalRun(spec, environ, stop, logs.take).result())


class LocalRun:
    """One job with its own stack, which is removed when the job ends."""

    def __init__(
        self, spec: JobSpec, environ: Mapping[str, str], stop: Stop, on_line: Callable[[LogLine], None]
    ) -> None:
        self._spec = spec
        self._environ = environ
        self._stop = stop
        self._on_line = on_line
        self._api: Api | None = None
        self._ended = asyncio.Event()

    async def result(self) -> int:
        return await unless_stopped(self._work(), self._stop, self._stop_job)

    async def _work(self) -> int:
        began = time.monotonic()
        async with local_stack(self._environ, output.say) as stack:
            await stack.api.submit(self._spec)
            self._api = stack.api
            watch = Watch(
                stack.api,
                self._spec.name,
                on_line=self._on_line,
                on_event=output.tell_event,
                on_away=lambda why: output.say("the master does not answer; the job continues"),
            )
            async with asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(show_waiting(stack.api, self._spec.name), name="run-waiting")
                end = await watch.until_end()
                self._ended.set()
                waiting.cancel()
        took = output.duration(time.monotonic() - began)
        output.say(f"{self._spec.name} {end.phase} after {took}: {output.first_line(end.why)}")
        return end.code

    async def _stop_job(self) -> None:
        """Gives the trainers their grace to save; a second signal ends it."""
        if self._api is None:
            return
        output.say("stopping the job; repeat the signal to stop at once")
        with contextlib.suppress(TradewindError, TimeoutError):
            async with asyncio.timeout(STOP_S):
                before = await self._api.job(self._spec.name)
                view = await self._api.stop(self._spec.name)
            output.say(waiting_text(view))
            async with asyncio.timeout((view.stop_grace_s or 0.0) + STOP_S):
                await first_of(self._ended, self._stop.forced)
                after = await self._api.job(self._spec.name)
            if self._ended.is_set():
                output.say(checkpoint_text(before, after)[1])


async def show_waiting(api: Api, name: str) -> None:
    """Prints what the job waits for before its first world, if the wait is long."""
    reported = ""
    await asyncio.sleep(QUIET_S)
    while True:
        with contextlib.suppress(MasterAway):
            view = await api.job(name)
            if view.phase not in ("waiting", "forming"):
                return
            if view.why != reported:
                reported = view.why
                output.say(f"{view.phase}: {reported}")
        await asyncio.sleep(POLL_S)


def spec_of(
    script: str,
    args: tuple[str, ...],
    *,
    module: bool,
    python: str | None,
    most: int,
    least: int,
    ranks: int,
    failures: int,
    environ: Mapping[str, str],
    program: bool = False,
    restart: RestartOptions = NO_RESTART_OPTIONS,
) -> JobSpec:
    if least > most:
        raise UserError(
            f"The minimum ({least} workers) is larger than the maximum ({most}).",
            f"tradewind run --workers {least} …",
        )
    if program:
        check_program(script)
    elif not module:
        check_script(script)
    path = restart.checkpoint_path
    return JobSpec(
        name=job_name(script.rpartition(".")[2] if module else Path(script).stem),
        launch=Launch(
            script=None if module else script,
            module=script if module else None,
            args=args,
            workdir=str(current_folder()),
            python=interpreter(python or sys.executable),
            env=one_thread_each(most * ranks, environ),
            restart_args=restart.restart_args,
            checkpoint_path=str(expanded(path, "--checkpoint-path")) if path is not None else None,
            preload=restart.preload,
        ),
        workers=Workers(max=most, min=least, ranks=ranks),
        failures=Failures(max=failures),
    )


def check_script(name: str) -> None:
    script = Path(name)
    try:
        mode = script.stat().st_mode
    except FileNotFoundError:
        near = difflib.get_close_matches(script.name, [one.name for one in script.parent.glob("*.py")], n=1)
        hint = f"tradewind run {script.with_name(near[0])}" if near else "tradewind run --help"
        raise UserError(f"There is no script {name}.", hint) from None
    except OSError as error:
        raise UserError(f"The script {name} cannot be read: {error.strerror}.", "tradewind run --help") from None
    if stat.S_ISDIR(mode):
        raise UserError(f"{name} is a folder, not a script.", f"tradewind run {script / 'train.py'}")
    if not stat.S_ISREG(mode):
        raise UserError(f"{name} is not a regular file.", "tradewind run --help")


def check_program(name: str) -> None:
    if shutil.which(name) is None:
        missing = not Path(name).exists()
        why = f"There is no program {name}." if missing else f"{name} cannot be executed."
        raise UserError(why, "tradewind run --help" if missing else f"chmod +x {name}")


def one_thread_each(ranks: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Limits each of several ranks to one thread, as torchrun does: otherwise they use more threads than cores."""
    return {"OMP_NUM_THREADS": "1"} if ranks > 1 and "OMP_NUM_THREADS" not in environ else {}


def gpu_warning(workers: int, ranks: int, gpus: int) -> str | None:
    """A warning if ranks must share a GPU."""
    if workers == 1 or gpus == 0 or workers * ranks <= gpus:
        return None
    shared = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
    return (
        f"{workers * ranks} ranks share {shared} of this machine, and NCCL refuses that; "
        f"use at most {max(1, gpus // ranks)} workers, or gloo in the script"
    )


def interpreter(name: str) -> str:
    """The absolute path of the interpreter. Links are not resolved: a virtual environment is found through them."""
    found = shutil.which(name)
    if found is None:
        raise UserError(f"There is no interpreter {name}.", 'tradewind run --python "$(which python3)" …')
    return str(Path(found).absolute())


def job_name(title: str) -> str:
    """A name for the job with a random ending."""
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40].strip("-")
    return f"{words or 'job'}-{secrets.token_hex(2)}"
