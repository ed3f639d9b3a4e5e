"""Settings: flags before environment before defaults, and all problems together."""

from typing import Annotated

import pytest
from msgspec import Meta, Struct

from runtime import problem_messages as words
from runtime.errors import UserError
from runtime.settings import NATS_PREFIX, BusSettings, read_settings


class Sample(Struct, frozen=True, forbid_unknown_fields=True):
    cluster: str
    slots: Annotated[int, Meta(ge=1)] = 1
    verbose: bool = False
    address: str | None = None
    grace_s: float = 5.0


def test_values_come_from_flags_then_the_environment_then_the_defaults() -> None:
    environ = {"TRADEWIND_CLUSTER": "local", "TRADEWIND_SLOTS": "2", "TRADEWIND_VERBOSE": "true", "OTHER": "x"}
    assert read_settings(Sample, environ, {"slots": 4, "address": None}) == Sample("local", 4, True, None, 5.0)


def test_an_empty_variable_is_not_set() -> None:
    assert read_settings(Sample, {"TRADEWIND_CLUSTER": "a", "TRADEWIND_SLOTS": ""}) == Sample("a")


def test_all_problems_are_told_together_by_the_name_the_person_used() -> None:
    environ = {"TRADEWIND_SLOTS": "0", "TRADEWIND_VERBOSE": "perhaps"}
    with pytest.raises(UserError) as raised:
        read_settings(Sample, environ, {"grace_s": "soon"})
    assert set(raised.value.problems) == {
        f"TRADEWIND_CLUSTER: {words.missing()}",
        f"TRADEWIND_SLOTS: {words.not_allowed('0', {'ge': 1})}",
        f"TRADEWIND_VERBOSE: {words.expected('bool', 'perhaps', shown=True)}",
        f"--grace-s: {words.expected('float', 'soon', shown=True)}",
    }


def test_the_bus_settings_have_their_own_prefix() -> None:
    environ = {"TRADEWIND_NATS_URL": "nats://bus:4222", "TRADEWIND_NATS_CONNECT_TIMEOUT_S": "30"}
    settings = read_settings(BusSettings, environ, {"name": "master/a"}, prefix=NATS_PREFIX)
    assert settings == BusSettings(url="nats://bus:4222", name="master/a", connect_timeout_s=30.0)


def test_a_flag_that_is_no_setting_is_a_defect() -> None:
    with pytest.raises(KeyError, match="speed"):
        read_settings(Sample, {"TRADEWIND_CLUSTER": "a"}, {"speed": 1})
