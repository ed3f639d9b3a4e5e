"""A command that does not exist."""

from tests.cli.command import tradewind


async def test_a_mistyped_command_is_answered_with_the_nearest() -> None:
    done = await tradewind("stauts", environ={})
    assert done.code == 2
    assert "'stauts'" in done.err and "'status'?" in done.err
