"""One process, one format: an event name and fields, for people or as JSON."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from runtime import logs


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def configured(**environ: str) -> io.StringIO:
    stream = io.StringIO()
    logs.configure("worker", environ=environ, stream=stream, worker="w1")
    return stream


def test_people_read_the_event_and_its_fields() -> None:
    stream = configured()
    logs.logger(bus="b").info("trainer_exited", rank=3, why="it was killed", empty="")
    line = stream.getvalue().strip()
    assert "trainer_exited" in line
    assert "role=worker worker=w1" in line
    assert "rank=3" in line
    assert "why='it was killed'" in line
    assert "empty=''" in line
    assert "\n" not in line


def test_machines_read_json() -> None:
    stream = configured(TRADEWIND_LOG="json")
    logs.logger().warning("bus_disconnected", url="nats://x")
    line = json.loads(stream.getvalue())
    assert (line["event"], line["level"], line["role"], line["url"]) == (
        "bus_disconnected",
        "warning",
        "worker",
        "nats://x",
    )


def test_what_libraries_say_goes_the_same_way() -> None:
    stream = configured(TRADEWIND_LOG="json")
    error = "nats: encountered %s"
    logging.getLogger("nats.aio.client").error(error, "error")
    logging.getLogger("nats.aio.client").info("chatter")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["event"], line["role"]) for line in lines] == [(error % "error", "worker")]


def test_an_exception_is_shown_with_its_trace() -> None:
    for environ in ({}, {"TRADEWIND_LOG": "json"}):
        stream = configured(**environ)
        try:
            raise LookupError("gone")
        except LookupError:
            logs.logger().exception("role_failed")
        assert "role_failed" in stream.getvalue()
        assert "LookupError: gone" in stream.getvalue()


def test_the_level_can_be_chosen_and_nonsense_means_info() -> None:
    quiet = configured(TRADEWIND_LOG_LEVEL="warning")
    logs.logger().info("hidden")
    assert quiet.getvalue() == ""
    talkative = configured(TRADEWIND_LOG_LEVEL="debug")
    logs.logger().debug("shown")
    assert "shown" in talkative.getvalue()
    normal = configured(TRADEWIND_LOG_LEVEL="nonsense")
    logs.logger().debug("hidden")
    logs.logger().info("shown")
    assert normal.getvalue().count("\n") == 1


def test_configuring_again_does_not_double_the_lines() -> None:
    configured()
    stream = configured()
    logs.logger().info("once")
    assert stream.getvalue().count("once") == 1


def test_a_logger_made_before_the_configuration_follows_it() -> None:
    early = logs.logger(made="early")
    stream = configured()
    early.info("late")
    assert "late" in stream.getvalue()
    assert "made=early" in stream.getvalue()


def test_once_is_true_once_for_each_key_and_bounded() -> None:
    once = logs.Once(limit=2)
    assert [once("a"), once("a"), once("b"), once("c")] == [True, False, True, False]


def test_a_reason_is_logged_when_it_changes() -> None:
    stream = configured(TRADEWIND_LOG="json")
    why = logs.WhyLog(logs.logger(), "decided")
    for reason in ("2 of 3 ready", "2 of 3 ready", "", "all ready", "2 of 3 ready"):
        why(reason, job="j")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["why"] for line in lines] == ["2 of 3 ready", "all ready", "2 of 3 ready"]
    assert {(line["event"], line["job"]) for line in lines} == {("decided", "j")}
