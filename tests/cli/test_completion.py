"""Completion in the shell."""

import pytest

from tests.cli.command import tradewind
from tests.cli.fake_master import FakeMaster, a_view


async def test_names_of_jobs_complete_in_the_shell(master: FakeMaster) -> None:
    master.views = {"mnist-big": a_view("mnist-big"), "llama": a_view("llama")}
    words = {"COMP_WORDS": "tradewind status mn", "COMP_CWORD": "2", "_TRADEWIND_COMPLETE": "bash_complete"}
    done = await tradewind(environ={**master.environ, **words})
    assert done.out.split() == ["plain,mnist-big"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_there_is_a_completion_script_for_every_shell(shell: str) -> None:
    done = await tradewind("completion", shell, environ={})
    assert done.code == 0
    assert "_TRADEWIND_COMPLETE" in done.out
