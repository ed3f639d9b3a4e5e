"""How the commands speak with a master: who answers, who does not, and what a person is told."""

import asyncio

import pytest
from aiohttp import web

from tests.cli.answering import answering
from tests.cli.builders import asked
from tests.cli.command import tradewind
from tests.cli.fake_master import FakeMaster, a_view


async def test_an_unknown_job_is_answered_with_the_nearest_names(master: FakeMaster) -> None:
    master.views = {"mnist-big": a_view("mnist-big"), "llama": a_view("llama")}
    done = await asked(master, "status", "mnist-bug")
    assert done.code == 2
    assert done.err == "Error: There is no job 'mnist-bug'. Did you mean 'mnist-big'?\nTry: tradewind status\n"


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        (
            "TRADEWIND_API_URL",
            "http://127.0.0.1:1",
            "The master at http://127.0.0.1:1 cannot be reached: nobody listens",
        ),
        ("TRADEWIND_API_URL", "http://127.0.0.1:99999", "http://127.0.0.1:99999 cannot be reached: that is no address"),
        ("TRADEWIND_API_URL", "localhost", "'localhost', but must be http://HOST:PORT, or several with commas"),
        (
            "TRADEWIND_API_TOKEN",
            "secret\n",
            "TRADEWIND_API_TOKEN contains a line break or another unprintable character",
        ),
    ],
)
async def test_a_master_that_cannot_be_asked_is_one_sentence_and_what_to_do(
    master: FakeMaster, variable: str, value: str, told: str
) -> None:
    for command in (("cost", "mnist"), ("budget", "mnist", "9"), ("explain", "mnist")):
        done = await tradewind(*command, environ={**master.environ, variable: value})
        assert (done.code, done.out) == (2, "")
        assert told in done.err and "\nTry: " in done.err
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
    assert done.code == 2
    assert f"{url} cannot be reached: what answers there does not speak HTTP.\nTry: " in done.err


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
    assert done.err == (
        f"Error: {environ['TRADEWIND_API_URL']} redirects to {place}; redirects are not followed.\nTry: {hint}\n"
    )


@pytest.mark.parametrize(
    ("answer", "why", "hint"),
    [
        ("500 Internal Server Error", "status 500", "look at the master's log, and ask again"),
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
    assert done.code == 2
    assert done.err == (f"Error: The master at {environ['TRADEWIND_API_URL']} could not answer: {why}.\nTry: {hint}\n")


@pytest.mark.parametrize("name", ["mnist/cost", "..", "", "mnist?x=1", "mnist#"])
async def test_what_is_no_name_is_no_job_and_never_another_question(master: FakeMaster, name: str) -> None:
    master.views["mnist"] = a_view()
    done = await asked(master, "cost", name)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Error: There is no job {name!r}.")
    assert done.err.endswith("Try: tradewind status\n")


async def test_a_master_that_is_not_there_is_one_sentence_and_what_to_start() -> None:
    done = await tradewind("status", environ={"TRADEWIND_API_URL": "http://127.0.0.1:1"})
    assert done.code == 2
    assert done.err.startswith("Error: The master at http://127.0.0.1:1 cannot be reached: ")
    assert "tradewind master" in done.err
    assert "Traceback" not in done.err


async def test_a_wrong_token_is_one_sentence(master: FakeMaster) -> None:
    master.token = "secret"
    done = await tradewind("status", environ={"TRADEWIND_API_URL": master.url, "TRADEWIND_API_TOKEN": "wrong"})
    assert done.code == 2
    assert "does not accept the token" in done.err
    assert "TRADEWIND_API_TOKEN" in done.err


async def test_the_right_token_is_sent(master: FakeMaster) -> None:
    master.token = "secret"
    done = await asked(master, "status")
    assert (done.code, done.err) == (0, "")
    assert "There are no jobs yet" in done.out


async def test_an_address_that_is_none_is_told() -> None:
    done = await tradewind("status", environ={"TRADEWIND_API_URL": "master:8800"})
    assert done.code == 2
    assert "TRADEWIND_API_URL" in done.err


async def test_something_else_at_the_address_is_told_apart_from_a_master(master: FakeMaster) -> None:
    done = await tradewind("status", "x/../../healthz", environ=master.environ)
    assert done.code == 2
    assert "Traceback" not in done.err
