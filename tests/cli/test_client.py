"""Commands and masters: errors when no master, a standby or another server answers."""

import asyncio

import pytest
from aiohttp import web

from runtime.exit_codes import EXIT_UNREACHABLE
from tests.cli.answering import answering
from tests.cli.builders import asked
from tests.cli.command import tradewind
from tests.cli.fake_master import FakeMaster, a_view
from tradewind.cli.status import NO_JOBS
from tradewind.client.errors import JobUnknown, could_not_answer, unreachable

NOBODY = "http://127.0.0.1:1"
NO_ADDRESS = "http://127.0.0.1:99999"
REFUSED = "connection refused"


async def test_an_unknown_job_is_answered_with_the_nearest_names(master: FakeMaster) -> None:
    master.views = {"mnist-big": a_view("mnist-big"), "llama": a_view("llama")}
    done = await asked(master, "status", "mnist-bug")
    unknown = JobUnknown("mnist-bug", ["mnist-big", "llama"])
    assert "mnist-big" in unknown.message and "llama" not in unknown.message
    assert (done.code, done.error, done.hint) == (2, unknown.message, unknown.hint.split())


@pytest.mark.parametrize(
    ("variable", "value", "code", "reported"),
    [
        ("TRADEWIND_API_URL", NOBODY, 3, str(unreachable(NOBODY, REFUSED))),
        ("TRADEWIND_API_URL", NO_ADDRESS, 3, NO_ADDRESS),
        ("TRADEWIND_API_URL", "localhost", 2, "'localhost'"),
        ("TRADEWIND_API_TOKEN", "secret\n", 2, "TRADEWIND_API_TOKEN"),
    ],
)
async def test_a_master_that_cannot_be_asked_is_one_sentence_and_what_to_do(
    master: FakeMaster, variable: str, value: str, code: int, reported: str
) -> None:
    for command in (("cost", "mnist"), ("budget", "mnist", "9"), ("explain", "mnist")):
        done = await tradewind(*command, environ={**master.environ, variable: value})
        assert (done.code, done.out) == (code, "")
        assert reported in done.err and "\nTry: " in done.err
        assert "Traceback" not in done.err and "secret" not in done.err


async def test_what_answers_and_is_no_master_is_told_without_what_it_said() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'INFO {"server_name": "a bus"}\r\n')
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        done = await tradewind("cost", "mnist", environ={"TRADEWIND_API_URL": url})
    assert done.code == EXIT_UNREACHABLE
    assert url in done.error and "HTTP" in done.error
    assert "a bus" not in done.err and done.hint


@pytest.mark.parametrize(
    ("sent_to", "hint"),
    [
        ("https://master.example{path}", "export TRADEWIND_API_URL=https://master.example"),
        ("/login", "export TRADEWIND_API_URL=http://HOST:PORT of the master"),
    ],
)
@pytest.mark.parametrize("command", [("stop", "mnist"), ("events",)])
async def test_who_is_sent_on_is_told_where_and_follows_nowhere(
    command: tuple[str, ...], sent_to: str, hint: str
) -> None:
    asked: list[str] = []

    async def send_on(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=302, headers={"Location": sent_to.format(path=request.path)})

    async with answering(send_on) as environ:
        done = await tradewind(*command, environ=environ)
    (path,) = asked
    place = sent_to.format(path=path)
    assert done.says("Error: ", environ["TRADEWIND_API_URL"], place)
    assert done.hint == hint.split()


@pytest.mark.parametrize(
    ("answer", "why", "hint"),
    [
        ("500 Internal Server Error", "status 500", could_not_answer("", "").hint),
        ('{"error": "The bus is away.", "hint": "try again in a moment"}', "The bus is away", "try again in a moment"),
    ],
)
async def test_a_master_that_answers_but_cannot_is_not_said_to_be_out_of_reach(
    answer: str, why: str, hint: str
) -> None:
    async def fail(request: web.Request) -> web.Response:
        return web.Response(status=500, text=answer)

    async with answering(fail) as environ:
        done = await tradewind("status", environ=environ)
    expected = could_not_answer(environ["TRADEWIND_API_URL"], why, hint)
    assert (done.code, done.error, done.hint) == (EXIT_UNREACHABLE, str(expected), hint.split())


@pytest.mark.parametrize("name", ["mnist/cost", "..", "", "mnist?x=1", "mnist#"])
async def test_what_is_no_name_is_no_job_and_never_another_question(master: FakeMaster, name: str) -> None:
    master.views["mnist"] = a_view()
    done = await asked(master, "cost", name)
    assert (done.code, done.out) == (2, "")
    assert done.error == JobUnknown(name, []).message or done.error == JobUnknown(name, ["mnist"]).message
    assert done.hint == ["tradewind", "status"]


async def test_a_master_that_is_not_there_is_one_sentence_and_what_to_start() -> None:
    done = await tradewind("status", environ={"TRADEWIND_API_URL": "http://127.0.0.1:1"})
    assert (done.code, done.error) == (EXIT_UNREACHABLE, str(unreachable(NOBODY, REFUSED)))
    assert "tradewind master" in done.err and "Traceback" not in done.err


async def test_a_wrong_token_is_one_sentence(master: FakeMaster) -> None:
    master.token = "secret"
    done = await tradewind("status", environ={"TRADEWIND_API_URL": master.url, "TRADEWIND_API_TOKEN": "wrong"})
    assert done.code == 2
    assert done.says("Error: ", master.url, "token") and "export" in done.hint


async def test_the_right_token_is_sent(master: FakeMaster) -> None:
    master.token = "secret"
    done = await asked(master, "status")
    assert (done.code, done.out.strip()) == (0, NO_JOBS)


async def test_an_address_that_is_none_is_told() -> None:
    done = await tradewind("status", environ={"TRADEWIND_API_URL": "master:8800"})
    assert done.code == 2
    assert "TRADEWIND_API_URL" in done.err


async def test_something_else_at_the_address_is_told_apart_from_a_master(master: FakeMaster) -> None:
    done = await tradewind("status", "x/../../healthz", environ=master.environ)
    assert done.code == 2
    assert "Traceback" not in done.err
