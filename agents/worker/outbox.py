"""The outbox for trainers' lines: sends them to the log stream in order and in batches, and retries each batch.

Batches wait while the bus is away, up to a bound; above it, the oldest are dropped and counted. A batch that was sent
twice is stored once, because its id identifies its lines.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from messages import subjects
from messages.codec import MessageTooLarge
from messages.ids import Generation, JobName, Rank, WorkerId
from messages.worlds import LogLines
from runtime.durable_outbox import DurableOutbox
from runtime.errors import BusRefused
from runtime.logs import Once, logger

LINGER_S = 0.1
"""Seconds until a batch that is not full is sent."""
BATCH_LINES = 200
BATCH_BYTES = 100_000

PublishDurable = Callable[[str, LogLines, str], Awaitable[None]]
"""Publishes a message on a subject. The id identifies a second copy."""


@dataclass(slots=True)
class _Batch:
    generation: Generation
    rank: Rank
    stderr: bool
    first_line: int
    lines: list[str] = field(default_factory=list)
    size_bytes: int = 0


class LogOutbox:
    def __init__(
        self,
        job: JobName,
        worker: WorkerId,
        publish: PublishDurable,
        *,
        max_lines: int = 100_000,
        max_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self.dropped_lines = 0
        self._job = job
        self._worker = worker
        self._publish = publish
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._open: dict[Rank, _Batch] = {}
        self._sealed: DurableOutbox[_Batch] = DurableOutbox("log lines", self._send)
        self._sealing: asyncio.TimerHandle | None = None
        self._next_line: dict[tuple[Generation, Rank], int] = {}
        self._lines = 0
        self._bytes = 0
        self._log = logger(worker=worker)
        self._log_once = Once()

    def add(self, generation: Generation, rank: Rank, lines: Sequence[str], *, stderr: bool) -> None:
        for line in lines:
            size_bytes = len(line.encode(errors="replace"))
            batch = self._batch_for(generation, rank, stderr, size_bytes)
            batch.lines.append(line)
            batch.size_bytes += size_bytes
            self._next_line[generation, rank] = batch.first_line + len(batch.lines)
            self._lines += 1
            self._bytes += size_bytes
        self._drop_oldest()
        if self._open and self._sealing is None:
            self._sealing = asyncio.get_running_loop().call_later(LINGER_S, self._seal_all)

    async def run(self) -> None:
        """Sends batches, until cancelled."""
        await self._sealed.run()

    def hurry(self) -> None:
        """Sends waiting lines at once."""
        self._seal_all()

    async def flush(self, timeout_s: float) -> bool:
        """Sends all lines. Returns True if the stream has them in time."""
        self.hurry()
        return await self._sealed.flush(timeout_s)

    def _batch_for(self, generation: Generation, rank: Rank, stderr: bool, size_bytes: int) -> _Batch:
        """Returns a batch with room for the line. A batch has one generation, one stream and no gap."""
        batch = self._open.get(rank)
        if batch is not None:
            full = len(batch.lines) >= BATCH_LINES or batch.size_bytes + size_bytes > BATCH_BYTES
            if (batch.generation, batch.stderr) == (generation, stderr) and not full:
                return batch
            self._seal(rank)
        if (generation, rank) not in self._next_line:
            self._forget_before(generation)
        self._open[rank] = _Batch(generation, rank, stderr, self._next_line.get((generation, rank), 0))
        return self._open[rank]

    def _forget_before(self, generation: Generation) -> None:
        self._next_line = {key: line for key, line in self._next_line.items() if key[0] >= generation - 1}

    def _seal(self, rank: Rank) -> None:
        self._sealed.put(self._open.pop(rank))

    def _seal_all(self) -> None:
        if self._sealing is not None:
            self._sealing.cancel()
            self._sealing = None
        for rank in list(self._open):
            self._seal(rank)

    def _drop_oldest(self) -> None:
        while self._lines > self._max_lines or self._bytes > self._max_bytes:
            if not len(self._sealed):
                self._seal_all()
            oldest = self._sealed.drop_oldest()
            if oldest is None:
                return
            self._drop(oldest, "too many lines wait for the bus")

    def _drop(self, batch: _Batch, why: str) -> None:
        self.dropped_lines += len(batch.lines)
        self._done_with(batch)
        if self._log_once(why):
            self._log.warning("log_lines_dropped", why=why, rank=batch.rank, generation=batch.generation)

    def _done_with(self, batch: _Batch) -> None:
        self._lines -= len(batch.lines)
        self._bytes -= batch.size_bytes

    async def _send(self, batch: _Batch) -> None:
        message = LogLines(
            job=self._job,
            rank=batch.rank,
            generation=batch.generation,
            worker=self._worker,
            lines=tuple(batch.lines),
            first_line=batch.first_line,
            stderr=batch.stderr,
        )
        subject = subjects.log(self._job, batch.rank)
        message_id = f"{self._worker}-{batch.generation}-{batch.rank}-{batch.first_line}"
        try:
            await self._publish(subject, message, message_id)
        except (BusRefused, MessageTooLarge) as error:
            self._drop(batch, str(error))
        else:
            self._done_with(batch)
