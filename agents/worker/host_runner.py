"""The host of this worker, one after the other, and the trainers that it forks."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import assert_never

from agents.worker.environment import rank_arguments, rank_environment
from agents.worker.events import HostLost, TrainerForkFailed, TrainersStopped, WorkerEvent
from agents.worker.external_host import ExternalHost, HostContainer
from agents.worker.host import Host, HostCommand
from agents.worker.host_connection import Conversation, Hear
from agents.worker.leftovers import WorkerFolder
from messages.ids import Generation, Rank
from messages.jobs import Launch
from messages.worlds import Assignment, Member
from runtime.clock import Clock
from runtime.logs import logger
from tradewind.protocol.host import TrainerSpec

HostChoice = HostCommand | HostContainer
"""The host as the agent's child process, or in another container."""


class HostRunner:
    def __init__(
        self,
        command: HostChoice,
        folder: WorkerFolder,
        hear: Hear,
        post: Callable[[WorkerEvent], None],
        clock: Clock,
    ) -> None:
        self._command = command
        self._folder = folder
        self._hear = hear
        self._post = post
        self._clock = clock
        self._host: Conversation | None = None
        self._is_ending = False
        self._log = logger()

    async def run(self) -> None:
        """Runs one host. Posts `HostLost` when it has ended."""
        host = self._new_host()
        self._host = host
        why = await host.run()
        self._host = None
        if not self._is_ending:
            self._log.warning("host_lost", why=why)
        self._post(HostLost(self._clock.monotonic_s(), why, is_unfit=host.is_unfit))

    def fork(self, assignment: Assignment, member: Member | None, more_env: Mapping[str, str]) -> None:
        if self._host is None or member is None:
            return
        ranks = [Rank(member.first_rank + local_rank) for local_rank in range(member.ranks)]
        try:
            error_files = [self._error_file(assignment, rank) for rank in ranks]
            folder = self._folder_of(assignment.launch)
        except OSError as error:
            at_s = self._clock.monotonic_s()
            for rank in ranks:
                self._post(TrainerForkFailed(at_s, assignment.generation, rank, str(error)))
            return
        launch = assignment.launch
        elsewhere = isinstance(self._command, HostContainer)
        trainers = tuple(
            TrainerSpec(
                rank=rank,
                env={
                    **rank_environment(assignment, member, local_rank, self._command.env, error_file),
                    **more_env,
                },
                argv=tuple(rank_arguments(launch.args, local_rank)),
                cwd=folder,
                script=launch.script,
                module=launch.module,
                program=launch.no_python,
                inherit=elsewhere,
            )
            for local_rank, (rank, error_file) in enumerate(zip(ranks, error_files, strict=True))
        )
        self._host.fork(assignment.generation, trainers)

    async def stop(self, generation: Generation, grace_s: float) -> TrainersStopped | None:
        if self._host is not None and not await self._host.stop(generation, grace_s):
            return None
        return TrainersStopped(self._clock.monotonic_s(), generation)

    def abort(self, generation: Generation, rank: Rank, why: str) -> None:
        if self._host is not None:
            self._host.abort(generation, rank, why)

    async def end(self) -> None:
        self._is_ending = True
        if self._host is not None:
            await self._host.end()

    def _new_host(self) -> Conversation:
        match self._command:
            case HostContainer() as container:
                return ExternalHost(container, self._folder, self._hear)
            case HostCommand() as command:
                return Host(command, self._folder, self._hear)
            case _:
                assert_never(self._command)

    def _folder_of(self, launch: Launch) -> str:
        """Returns the job's folder as a path for the host. Raises `OSError` if the current folder is gone."""
        folder = launch.workdir or "."
        return folder if isinstance(self._command, HostContainer) else str(Path(folder).absolute())

    def _error_file(self, assignment: Assignment, rank: Rank) -> str:
        """Returns the file in which a script may write why it failed. Removes those of older generations."""
        errors = self._folder.path / "errors"
        own = errors / str(assignment.generation)
        if not own.exists():
            shutil.rmtree(errors, ignore_errors=True)
        file = own / str(rank) / "error.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(self._command, HostContainer):
            file.parent.chmod(0o777)  # the script may run as another user
        return str(file)
