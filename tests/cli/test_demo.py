"""What the demonstration is not started for: numbers with which it could not show what it checks."""

import pytest

from tests.cli.command import tradewind


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--workers", "1"), "'--workers': 1 is not in the range 2<=x<=12."),
        (("--workers", "13"), "'--workers': 13 is not in the range 2<=x<=12."),
        (("--steps", "59"), "'--steps': 59 is not in the range x>=60."),
        (("--seconds", "39"), "use 100 to 600 s.\nTry: tradewind demo --seconds 100\n"),
        (("--seconds", "nan"), "use 100 to 600 s.\nTry: tradewind demo --seconds 100\n"),
        (("--local", "--seconds", "29"), "use 30 to 600 s.\nTry: tradewind demo --local --seconds 30\n"),
        (("--seconds", "601"), "'--seconds': 601.0 is not in the range x<=600."),
    ],
)
async def test_numbers_that_show_nothing_are_refused_before_anything_starts(
    arguments: tuple[str, ...], told: str
) -> None:
    done = await tradewind("demo", *arguments, environ={})
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert "starting" not in done.err
