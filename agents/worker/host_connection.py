"""The connection of an agent to its host, however the host is started. See `tradewind/protocol/host.py`."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

from agents.worker.trainer import Birth
from agents.worker.translation import birth_of
from messages.ids import Generation, Rank
from runtime.logs import Once, logger
from runtime.waiting import first_of
from tradewind.protocol import host as wire
from tradewind.protocol.lines import Unreadable

STOP_ANSWER_S = 8.0
"""Seconds after the grace of a stop until a host without an answer is abandoned."""
END_S = 8.0
"""Seconds that a host has to exit. It gives its trainers 2 s, and itself 5 more."""

Hear = Callable[[wire.HostMessage], None]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class HostEnded(Exception):
    """Raised when the host has ended; the message is the reason."""


def take_first(came: "asyncio.Future[Streams]") -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
    """Accepts the first connection, which is the host's, and closes all others."""

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if came.done():
            writer.close()
        else:
            came.set_result((reader, writer))

    return connected


def stop_unanswered(within_s: float) -> str:
    return f"did not stop its trainers within {within_s:.0f} s"


class Conversation(ABC):
    """One host, from its start to its end."""

    def __init__(self, hear: Hear, warm_s: float) -> None:
        self._hear = hear
        self._warm_s = warm_s
        self._writer: asyncio.StreamWriter | None = None
        self._warm = asyncio.Event()
        self._gone = asyncio.Event()
        self._refused = ""
        self.is_unfit = False
        """The host found that this worker cannot train."""
        self._forking: dict[Generation, set[Rank]] = {}
        self._pids: dict[Birth, int] = {}
        self._stops: list[tuple[Generation, asyncio.Event]] = []
        self._log = logger()
        self._log_once = Once()

    @abstractmethod
    async def run(self) -> str:
        """Runs until the host and everything that it forked are gone. Returns why."""

    @abstractmethod
    def _give_up(self, why: str) -> None:
        """Ends the host by force."""

    @abstractmethod
    def _on_forked(self, pid: int) -> None: ...

    @abstractmethod
    def _on_exited(self, pid: int) -> None: ...

    def fork(self, generation: Generation, trainers: tuple[wire.TrainerSpec, ...]) -> None:
        self._forking[generation] = {Rank(trainer.rank) for trainer in trainers}
        self._send(wire.Fork(generation, trainers))

    async def stop(self, generation: Generation, grace_s: float) -> bool:
        """Stops trainers up to this generation. Returns True if the host confirms; else the host is abandoned."""
        answered = asyncio.Event()
        self._stops.append((generation, answered))
        self._send(wire.Stop(generation, grace_s))
        if not await first_of(answered, self._gone, timeout_s=grace_s + STOP_ANSWER_S):
            self._give_up(stop_unanswered(grace_s + STOP_ANSWER_S))
        return answered.is_set()

    def abort(self, generation: Generation, rank: Rank, why: str) -> None:
        """Tells the host to record the trainer's stacks and to kill it. Its exit has the result."""
        self._send(wire.Abort(generation, rank, why))

    async def end(self) -> None:
        """Requests the host's exit, then forces it. A host that still imports is ended at once."""
        if not self._warm.is_set():
            self._give_up("was ended before it was warm")
        self._send(wire.Exit())
        try:
            async with asyncio.timeout(END_S):
                await self._gone.wait()
        except TimeoutError:
            self._give_up(f"did not exit within {END_S:.0f} s")

    def _send(self, command: wire.Command) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(wire.encode_command(command))

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        try:
            while line := await reader.readline():
                self._take(line)
        except (ValueError, ConnectionError) as error:
            self._give_up(f"sent an unreadable message: {error}")
        finally:
            writer.close()

    async def _limit_warming(self) -> None:
        try:
            async with asyncio.timeout(self._warm_s):
                await self._warm.wait()
        except TimeoutError:
            self._give_up(f"did not finish its imports (torch, launch.preload) within {self._warm_s:.0f} s")

    def _take(self, line: bytes) -> None:
        try:
            message = wire.decode_message(line)
        except Unreadable as error:
            if self._log_once(str(error)):
                self._log.warning("host_message_dropped", error=str(error), line=line[:200])
            return
        match message:
            case wire.Hello():
                self._log.info("host_warm", python=message.python, torch=message.torch, warm_s=message.warm_s)
                self._warm.set()
            case wire.Forked():
                self._on_forked(message.pid)
                self._pids[birth_of(message)] = message.pid
                self._answer_fork(birth_of(message))
            case wire.ForkFailed():
                self._answer_fork(birth_of(message))
            case wire.Exited():
                pid = self._pids.pop(birth_of(message), None)
                if pid is not None:
                    self._on_exited(pid)
            case wire.Stopped():
                self._answer_stop(Generation(message.generation))
            case wire.Refused():
                self._on_refused(message)
            case wire.Output() | wire.Progress() | wire.Checkpointed():
                pass
        self._hear(message)

    def _answer_fork(self, birth: Birth) -> None:
        generation, rank = birth
        self._forking.get(generation, set()).discard(rank)

    def _answer_stop(self, generation: Generation) -> None:
        for stop in self._stops:
            if stop[0] == generation:
                self._stops.remove(stop)
                stop[1].set()
                return

    def _on_refused(self, refused: wire.Refused) -> None:
        """Treats a refusal as failed forks: it names no trainer, and unanswered forks will get no answer."""
        why = refused.why
        self._log.error("host_refused", why=why)
        if not self._warm.is_set():
            self._refused, self.is_unfit = why, refused.unfit
            return
        for generation, ranks in self._forking.items():
            for rank in sorted(ranks):
                self._hear(wire.ForkFailed(generation, rank, why))
        self._forking.clear()
