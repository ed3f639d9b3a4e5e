"""The demonstration refuses numbers that are too small or too large for its checks."""

import pytest

from tests.cli.command import tradewind


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (("--workers", "1"), "'--workers': 1 is not in the range 2<=x<=12."),
        (("--workers", "13"), "'--workers': 13 is not in the range 2<=x<=12."),
        (("--steps", "59"), "'--steps': 59 is not in the range x>=60."),
        (("--seconds", "39"), "\nTry: tradewind demo --seconds 100\n"),
        (("--seconds", "nan"), "\nTry: tradewind demo --seconds 100\n"),
        (("--local", "--seconds", "29"), "\nTry: tradewind demo --local --seconds 30\n"),
        (("--seconds", "601"), "'--seconds': 601.0 is not in the range x<=600."),
    ],
)
async def test_numbers_that_show_nothing_are_refused_before_anything_starts(
    arguments: tuple[str, ...], reported: str
) -> None:
    done = await tradewind("demo", *arguments, environ={})
    assert (done.code, done.out) == (2, "")
    assert reported in done.err
    assert "starting" not in done.err
