"""The help of every command."""

import pytest

from tests.cli.command import invoked
from tradewind.cli import COMMANDS


def test_the_help_lists_every_command() -> None:
    text = invoked("--help", environ={}).out
    assert all(f"  {name} " in text for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_an_example(name: str) -> None:
    done = invoked(name, "--help", environ={})
    assert done.code == 0
    assert "Example" in done.out and f"tradewind {name}" in done.out


def test_the_help_of_the_simulator_lists_its_own_options() -> None:
    assert {"--part", "--speed", "--write-credentials"} <= set(invoked("simulator", "--help", environ={}).out.split())
