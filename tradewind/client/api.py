"""The client of the master's HTTP API.

An error that a person can correct is a `UserError`. A master that does not answer is a `MasterAway`: followers wait,
other commands report it. Of several masters, the client asks each until it finds the leader.
"""

import asyncio
import errno
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from http import HTTPStatus
from typing import Annotated, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from msgspec import Meta, Struct

from messages.api import (
    EventLine,
    Health,
    JobList,
    JobView,
    LogLine,
    Problem,
    ProgressLine,
    ScaleRequest,
    StopRequest,
    Version,
    WorkerPage,
    WorkerView,
)
from messages.budgets import BudgetRequest, BudgetView
from messages.costs import CostView
from messages.decoding import Decoder, Undecodable, decode
from messages.ids import JobName
from messages.jobs import JobSpec
from messages.offers import OfferList
from runtime.errors import UserError
from runtime.settings import read_settings
from tradewind.client.errors import JobUnknown, MasterAway, NotAsked, NotLeading, could_not_answer, unreachable

T = TypeVar("T")

ANSWER_S = 10.0
CONNECT_S = 3.0
SILENCE_S = 60.0
"""Seconds without data after which a stream is closed; a follower opens it again."""
TAKEOVER_S = 5.0
AGAIN_S = 0.2
JOBS_ON_A_PAGE = 200
MAX_LINE_BYTES = 2 * 1024 * 1024


class ClientSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`TRADEWIND_API_URL` and `TRADEWIND_API_TOKEN`."""

    api_url: Annotated[
        str,
        Meta(pattern=r"^https?://[^,]+(,\s*https?://[^,]+)*$", description="http://HOST:PORT, or several with commas"),
    ] = "http://127.0.0.1:8800"
    """One master, or several with commas between; requests go to the leader."""
    api_token: str | None = None


class Api:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._urls = deque(each.strip().rstrip("/") for each in url.split(","))
        """The last known leader comes first."""

    @property
    def url(self) -> str:
        return self._urls[0]

    async def submit(self, spec: JobSpec, *, replace: bool = False) -> JobView:
        path = "/v1/jobs?replace=1" if replace else "/v1/jobs"
        return await self._ask("POST", path, JobView, body=msgspec.json.encode(spec))

    async def remove(self, name: str) -> JobView:
        return await self._ask("DELETE", _of(name), JobView, job=name)

    async def jobs(self) -> tuple[JobView, ...]:
        return (await self.job_list()).jobs

    async def job_list(self) -> JobList:
        """All jobs, from all pages. A job that is unread on one page may be listed on another."""
        jobs: dict[str, JobView] = {}
        unread: dict[JobName, None] = {}
        after: str | None = ""
        while after is not None:
            page = await self._ask("GET", f"/v1/jobs?limit={JOBS_ON_A_PAGE}&after={quote(after)}", JobList)
            jobs |= {job.name: job for job in page.jobs}
            unread |= dict.fromkeys(page.unread)
            after = page.next or None
        return JobList(tuple(jobs.values()), tuple(name for name in unread if name not in jobs))

    async def job(self, name: str) -> JobView:
        return await self._ask("GET", _of(name), JobView, job=name)

    async def all_workers(self, name: str) -> tuple[WorkerView, ...]:
        """All workers, from all pages; a job's view has only the first ones."""
        workers: tuple[WorkerView, ...] = ()
        first: int | None = 0
        while first is not None:
            page = await self._ask("GET", f"{_of(name)}/workers?first={first}", WorkerPage, job=name)
            workers, first = workers + page.workers, page.next
        return workers

    async def stop(self, name: str, grace_s: float | None = None) -> JobView:
        body = msgspec.json.encode(StopRequest(grace_s)) if grace_s is not None else None
        return await self._ask("POST", f"{_of(name)}/stop", JobView, job=name, body=body)

    async def scale(self, name: str, workers: int) -> JobView:
        body = msgspec.json.encode(ScaleRequest(workers))
        return await self._ask("POST", f"{_of(name)}/scale", JobView, job=name, body=body)

    async def reload(self, name: str) -> JobView:
        return await self._ask("POST", f"{_of(name)}/reload", JobView, job=name)

    async def cost(self, name: str, steps: int | None = None) -> CostView:
        query = f"?steps={steps}" if steps is not None else ""
        return await self._ask("GET", f"{_of(name)}/cost{query}", CostView, job=name)

    async def budget(self, name: str) -> BudgetView:
        return await self._ask("GET", f"{_of(name)}/budget", BudgetView, job=name)

    async def raise_budget(self, name: str, usd: float) -> BudgetView:
        body = msgspec.json.encode(BudgetRequest(usd))
        return await self._ask("POST", f"{_of(name)}/budget", BudgetView, job=name, body=body)

    async def offers(self) -> OfferList:
        return await self._ask("GET", "/v1/offers", OfferList)

    async def health(self) -> Health:
        return await self._ask("GET", "/healthz", Health)

    async def version(self) -> Version:
        return await self._ask("GET", "/version", Version)

    def logs(
        self, name: str, *, rank: int | None = None, tail: int | None = None, follow: bool = False
    ) -> AsyncIterator[LogLine]:
        query = {"rank": rank, "tail": tail, "follow": 1 if follow else None}
        return self._stream(f"{_of(name)}/logs", LogLine, job=name, query=query)

    def events(
        self, name: str | None = None, *, tail: int | None = None, follow: bool = False
    ) -> AsyncIterator[EventLine]:
        path = "/v1/events" if name is None else f"{_of(name)}/events"
        return self._stream(path, EventLine, job=name, query={"tail": tail, "follow": 1 if follow else None})

    def progress(self, name: str, *, follow: bool = True) -> AsyncIterator[ProgressLine]:
        query = {"follow": 1 if follow else None}
        return self._stream(f"{_of(name)}/progress", ProgressLine, job=name, query=query)

    async def _ask(self, method: str, path: str, answer: type[T], *, job: str = "", body: bytes | None = None) -> T:
        """Asks the leader. If only standbys answer, retries until one of them takes over."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + TAKEOVER_S
        while True:
            failed: list[MasterAway] = []
            for _ in range(len(self._urls)):
                try:
                    return await self._ask_one(method, path, answer, job, body)
                except MasterAway as away:
                    if method != "GET" and not isinstance(away, NotAsked):
                        raise
                    failed.append(away)
                    self._urls.rotate(-1)
            standby = next((away for away in failed if isinstance(away, NotLeading)), None)
            if standby is None or len(failed) == 1 or loop.time() > until_s:
                raise standby or failed[0]
            await asyncio.sleep(AGAIN_S)

    async def _ask_one(self, method: str, path: str, answer: type[T], job: str, body: bytes | None) -> T:
        try:
            async with self._session.request(
                method,
                self.url + path,
                data=body,
                timeout=aiohttp.ClientTimeout(ANSWER_S, sock_connect=CONNECT_S),
                allow_redirects=False,
            ) as response:
                payload = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _away(self.url, error) from error
        if response.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise await self._refusal(response, payload, job)
        try:
            return decode(payload, answer)
        except Undecodable as error:
            raise self._not_a_master(str(error)) from error

    async def _stream(
        self, path: str, line: type[T], *, job: str | None, query: Mapping[str, int | None]
    ) -> AsyncIterator[T]:
        for others in reversed(range(len(self._urls))):
            begun = False
            try:
                async with aclosing(self._stream_one(path, line, job, query)) as lines:
                    async for each in lines:
                        begun = True
                        yield each
                return
            except MasterAway:
                if begun or others == 0:
                    raise
                self._urls.rotate(-1)

    async def _stream_one(
        self, path: str, line: type[T], job: str | None, query: Mapping[str, int | None]
    ) -> AsyncGenerator[T, None]:
        decoder: Decoder[T] = Decoder(line)
        given = {key: str(value) for key, value in query.items() if value is not None}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S)
        try:
            async with self._session.get(
                self.url + path, params=given, timeout=timeout, read_bufsize=MAX_LINE_BYTES, allow_redirects=False
            ) as response:
                if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                    raise await self._refusal(response, await response.read(), job or "")
                async for text in response.content:
                    if text.strip():
                        yield decoder.decode(text)
        except Undecodable as error:
            raise self._not_a_master(str(error)) from error
        except aiohttp.SocketTimeoutError:
            return
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _away(self.url, error) from error

    async def _refusal(self, response: aiohttp.ClientResponse, payload: bytes, job: str) -> UserError | MasterAway:
        status, problem = response.status, _problem(payload)
        if status < HTTPStatus.BAD_REQUEST and "Location" in response.headers:
            return self._redirected(response.headers["Location"], str(response.url).removeprefix(self.url))
        if status == HTTPStatus.NOT_FOUND and job:
            listed = await self.job_list()
            return JobUnknown(job, [*(view.name for view in listed.jobs), *listed.unread])
        if status == HTTPStatus.UNAUTHORIZED:
            hint = "export TRADEWIND_API_TOKEN=… with the token that the master was started with"
            return UserError(f"The master at {self.url} does not accept the token.", hint)
        if problem is not None and problem.leader is not None:
            return NotLeading(self.url, problem.leader)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            if problem is None:
                return could_not_answer(self.url, f"status {status}")
            return could_not_answer(self.url, problem.error.rstrip("."), problem.hint)
        if problem is None:
            return self._not_a_master(f"status {status}")
        return UserError(problem.error, problem.hint, problem.problems)

    def _redirected(self, place: str, asked: str) -> UserError:
        """The error for a redirect. It is not followed: a POST could become a GET, and the token would be missing."""
        there = place.removesuffix(asked)
        known = there != place and there.startswith(("http://", "https://"))
        return UserError(
            f"{self.url} redirects to {place}; redirects are not followed.",
            f"export TRADEWIND_API_URL={there if known else 'http://HOST:PORT of the master'}",
        )

    def _not_a_master(self, why: str) -> UserError:
        return UserError(
            f"The server at {self.url} is not a Tradewind master of this version ({why}).",
            "export TRADEWIND_API_URL=http://HOST:PORT of the master",
        )


@asynccontextmanager
async def connected(environ: Mapping[str, str]) -> AsyncIterator[Api]:
    settings = read_settings(ClientSettings, environ)
    if settings.api_token and not settings.api_token.isprintable():
        # The token is a secret, so the message does not contain it.
        raise UserError(
            "TRADEWIND_API_TOKEN contains a line break or another unprintable character.", "export it without that"
        )
    async with session(settings.api_token) as opened:
        yield Api(opened, settings.api_url)


@asynccontextmanager
async def session(token: str | None = None) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    async with aiohttp.ClientSession(headers=headers) as opened:
        yield opened


def _of(job: str) -> str:
    """The path of a job. Raises `JobUnknown` for names that would change the path."""
    if job in ("", ".", ".."):
        raise JobUnknown(job, [])
    return f"/v1/jobs/{quote(job, safe='')}"


def _problem(payload: bytes) -> Problem | None:
    try:
        return decode(payload, Problem)
    except Undecodable:
        return None


def _away(url: str, error: BaseException) -> MasterAway:
    never_connected = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    return unreachable(url, _reason(error), was_asked=not never_connected)


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.InvalidURL):
        return "invalid address"
    if isinstance(error, aiohttp.ClientResponseError):
        return "the server does not speak HTTP"
    if isinstance(error, aiohttp.ClientConnectorError):
        refused = error.os_error.errno == errno.ECONNREFUSED
        return "connection refused" if refused else error.strerror or str(error)
    return str(error) or type(error).__name__
