"""Logs, events and progress as streams of JSON lines.

A stream that follows a job ends after the job's last event, or when the job has ended and no line comes for a while.
Blank lines keep a quiet stream alive.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from http import HTTPStatus

import msgspec
from aiohttp import web

from controlplane.api.service import JobService
from controlplane.jobs.runner import JobRunner
from messages import subjects
from messages.api import EventLine, GenerationLine, LogLine, ProgressLine
from messages.codec import Received
from messages.envelope import Envelope
from messages.events import JOB_ENDS, Event
from messages.ids import JobName, Rank
from messages.worlds import LogLines
from runtime.errors import UserError

KEEP_ALIVE_S = 15.0
QUIET_AFTER_END_S = 2.0
BUFFERED = 1000
TAIL_AT_MOST = 100_000

Lines = AsyncGenerator[msgspec.Struct, None]
LinesOf = Callable[[Received], Iterator[msgspec.Struct]]


class Feeds:
    def __init__(self, service: JobService) -> None:
        self._service = service
        self._closing = asyncio.Event()

    def close(self) -> None:
        self._closing.set()

    async def logs(self, request: web.Request) -> web.StreamResponse:
        runner = self._service.job(request.match_info["name"])
        rank, tail, follow = number_of(request, "rank"), number_of(request, "tail"), is_set(request, "follow")
        lines = await self._log_lines(runner.name, rank, tail, follow)
        return await self._send(request, lines, runner if follow else None)

    async def events(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info.get("name")
        runner = self._service.job(name) if name is not None else None
        tail, follow = number_of(request, "tail"), is_set(request, "follow")
        return await self._send(request, await self._event_lines(runner, tail, follow), runner if follow else None)

    async def progress(self, request: web.Request) -> web.StreamResponse:
        """With `summary=1` a line for each generation so far; with `follow=1` each report of a worker."""
        runner = self._service.job(request.match_info["name"])
        summary, follow = is_set(request, "summary"), is_set(request, "follow")
        return await self._send(request, self._progress_lines(runner, summary, follow), runner if follow else None)

    async def _log_lines(self, job: JobName, rank: int | None, tail: int | None, follow: bool) -> Lines:
        subject = subjects.log(job, Rank(rank) if rank is not None else None)
        return await self._stored_lines(subjects.LOGS_STREAM, subject, _log_lines_of, tail, follow)

    async def _event_lines(self, runner: JobRunner | None, tail: int | None, follow: bool) -> Lines:
        subject = subjects.event(runner.name if runner is not None else None)
        lines = await self._stored_lines(subjects.EVENTS_STREAM, subject, _event_lines_of, tail, follow)
        return _until_job_ends(lines) if follow and runner is not None else lines

    async def _stored_lines(
        self, stream: str, subject: str, lines_of: LinesOf, tail: int | None, follow: bool
    ) -> Lines:
        """Reads the tail before it returns, so that an error becomes the answer and not a pause in the stream."""
        bus, newest = self._service.bus, None
        if tail is not None:
            newest = await bus.tail(stream, subject, min(tail, TAIL_AT_MOST), lines_of)

        async def lines() -> Lines:
            for line in newest.items if newest is not None else ():
                yield line
            if newest is not None and not follow:
                return
            stored = bus.replay(stream, subject, after=newest.sequence if newest is not None else 0, follow=follow)
            async with contextlib.aclosing(stored) as messages:
                async for _, received in messages:
                    for line in lines_of(received):
                        yield line

        return lines()

    async def _progress_lines(self, runner: JobRunner, summary: bool, follow: bool) -> Lines:
        if summary:
            for done in runner.progress.generations:
                yield GenerationLine(
                    done.generation, done.first_step, done.last_step, done.samples, done.first_at, done.last_at
                )
        if follow:
            with self._service.progress_feed(runner.name) as feed:
                while True:
                    at, report = await feed.get()
                    yield ProgressLine(at, report.worker, report.generation, report.ranks)

    async def _send(self, request: web.Request, lines: Lines, runner: JobRunner | None) -> web.StreamResponse:
        """Sends lines. `runner` is the followed job, whose end ends the stream; None if the lines end by themselves."""
        response = web.StreamResponse(status=HTTPStatus.OK, headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        encoder = msgspec.json.Encoder()
        waiting: asyncio.Queue[msgspec.Struct | None] = asyncio.Queue(BUFFERED)
        async with asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(_read(lines, waiting), name=f"feed{request.path}")
            closer = tasks.create_task(_when_set(self._closing, waiting), name=f"feed-end{request.path}")
            with contextlib.suppress(ConnectionResetError):
                async for line in self._arriving(waiting, runner):
                    await response.write(encoder.encode(line) + b"\n" if line is not None else b"\n")
            reader.cancel()
            closer.cancel()
        with contextlib.suppress(ConnectionResetError):
            await response.write_eof()
        return response

    async def _arriving(
        self, waiting: "asyncio.Queue[msgspec.Struct | None]", runner: JobRunner | None
    ) -> AsyncIterator[msgspec.Struct | None]:
        """Lines until the stream ends; None after a pause, as a sign of life."""
        loop = asyncio.get_running_loop()
        silent_since_s = loop.time()
        while not self._closing.is_set():
            ended = runner is not None and runner.ended and self._service.has_sent_all
            try:
                async with asyncio.timeout(QUIET_AFTER_END_S):
                    line = await waiting.get()
            except TimeoutError:
                if ended:
                    return
                if loop.time() - silent_since_s >= KEEP_ALIVE_S:
                    silent_since_s = loop.time()
                    yield None
                continue
            if line is None:
                return
            silent_since_s = loop.time()
            yield line


async def _read(lines: Lines, waiting: "asyncio.Queue[msgspec.Struct | None]") -> None:
    async with contextlib.aclosing(lines):
        async for line in lines:
            await waiting.put(line)
    await waiting.put(None)


async def _when_set(closing: asyncio.Event, waiting: "asyncio.Queue[msgspec.Struct | None]") -> None:
    await closing.wait()
    await waiting.put(None)


async def _until_job_ends(lines: Lines) -> Lines:
    async with contextlib.aclosing(lines):
        async for line in lines:
            yield line
            if isinstance(line, EventLine) and line.kind in JOB_ENDS:
                return


def _event_lines_of(received: Received) -> Iterator[EventLine]:
    if isinstance(received.message, Event):
        yield _event_line(received.message, received.envelope)


def _log_lines_of(received: Received) -> Iterator[LogLine]:
    message = received.message
    if isinstance(message, LogLines):
        at = received.envelope.at.timestamp()
        for line in message.lines:
            yield LogLine(at, message.rank, message.generation, line, message.stderr)


def number_of(request: web.Request, name: str) -> int | None:
    given = request.query.get(name, "")
    if not given:
        return None
    if not given.isdecimal() or len(given) > 9:
        raise UserError(f"{name}={given[:50]!r} is not a whole number of at least 0.")
    return int(given)


def is_set(request: web.Request, name: str) -> bool:
    return request.query.get(name, "") in ("1", "true", "yes")


def _event_line(event: Event, envelope: Envelope) -> EventLine:
    caused_by = f"{envelope.cause} ({envelope.caused_by})" if envelope.cause else envelope.caused_by or ""
    at = envelope.at.timestamp()
    return EventLine(at, event.scope, event.kind, event.text, event.why, event.fields, caused_by)
