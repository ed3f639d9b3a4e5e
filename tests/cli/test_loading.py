"""The command loads what it starts when it starts it, and nothing before."""

import subprocess
import sys

import pytest

from tradewind.cli import COMMANDS

HEAVY = ("torch", "numpy", "nats", "aiohttp", "asyncio", "msgspec", "rich", "messages", "controlplane", "agents")
PROBE = """
import sys
from tradewind.cli import main
sys.argv = ["tradewind", *{arguments!r}]
try:
    main()
except SystemExit as end:
    loaded = sorted(name for name in {heavy!r} if name in sys.modules)
    print("LOADED", ",".join(loaded), "CODE", end.code or 0)
"""


def loaded_by(*arguments: str) -> tuple[str, str]:
    code = PROBE.format(arguments=list(arguments), heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    help_text, _, loaded = done.stdout.partition("LOADED")
    return help_text, loaded.strip()


def test_the_help_lists_every_command_and_loads_nothing_heavy() -> None:
    text, loaded = loaded_by("--help")
    assert loaded == "CODE 0"
    assert all(f"  {name} " in text for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_an_example_and_loads_nothing_heavy(name: str) -> None:
    text, loaded = loaded_by(name, "--help")
    assert loaded == "CODE 0"
    assert "Example" in text
    assert f"tradewind {name}" in text


def test_the_help_of_the_simulator_lists_its_own_options() -> None:
    text, _ = loaded_by("simulator", "--help")
    assert {"--part", "--speed", "--write-credentials"} <= set(text.split())
