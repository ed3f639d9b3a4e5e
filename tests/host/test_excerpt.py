"""The excerpt of a failed trainer's standard error."""

import traceback

import pytest

from tradewind.host.excerpt import LINES_MOST, SIZE_MOST_BYTES, TRACEBACK_LINES_MOST, excerpt, omitted

NOISE = [f"step {number}" for number in range(100)]
HEADER = "Traceback (most recent call last):"


def a_traceback(frames: int = 2, error: str = "ValueError: no data") -> list[str]:
    lines = [HEADER]
    for number in range(frames):
        lines += [f'  File "train.py", line {number}, in work', f"    call_{number}()"]
    return [*lines, error]


def test_without_a_traceback_it_is_the_last_lines() -> None:
    assert excerpt([]) == []
    assert excerpt(NOISE) == NOISE[-LINES_MOST:]


def test_it_starts_at_the_traceback() -> None:
    assert excerpt([*NOISE, *a_traceback()]) == a_traceback()


@pytest.mark.parametrize("before", ["  50%|█████     | 1/2 [00:01<00:01,  1.00s/it]", "50%|##  |", "Epoch 1   "])
@pytest.mark.parametrize("rank", ["", "[rank1]: "])
def test_a_progress_bar_before_the_traceback_in_its_first_line_is_left_out(before: str, rank: str) -> None:
    first, *rest = [rank + line for line in a_traceback()]
    assert excerpt([*NOISE, before + first, *rest]) == [first, *rest]


def test_a_traceback_may_have_more_lines_than_an_excerpt_without_one() -> None:
    assert excerpt([*NOISE, *a_traceback(frames=20)]) == a_traceback(frames=20)


def test_of_several_tracebacks_the_last_counts() -> None:
    handled = a_traceback(error="KeyError: 'a', which the script handled")
    assert excerpt([*handled, *NOISE[:5], *a_traceback()]) == a_traceback()


@pytest.mark.parametrize("linked", ["raise ValueError('b') from error", "raise ValueError('b')"])
def test_a_chain_is_shown_from_its_first_traceback(linked: str) -> None:
    shown = ""
    try:
        exec(f"try:\n    {{}}['a']\nexcept KeyError as error:\n    {linked}")
    except ValueError:
        shown = traceback.format_exc()
    chain = shown.splitlines()
    assert chain.count(HEADER) == 2
    assert excerpt([*a_traceback(), *NOISE, *chain]) == chain
    ranked = [f"[rank1]: {line}" if line else "" for line in chain]
    assert excerpt([*NOISE, *ranked]) == ranked


def test_a_chain_that_does_not_fit_is_shown_from_its_last_traceback() -> None:
    link = ["", "During handling of the above exception, another exception occurred:", ""]
    assert excerpt([*a_traceback(frames=40), *link, *a_traceback()]) == a_traceback()


def test_the_tracebacks_inside_of_a_group_do_not_hide_it() -> None:
    shown = ""
    try:
        exec(
            "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n"
            "    try:\n        raise ExceptionGroup('inner', [error])\n"
            "    except ExceptionGroup as inner:\n        raise ExceptionGroup('outer', [inner]) from None"
        )
    except ExceptionGroup:
        shown = traceback.format_exc()
    lines = shown.splitlines()
    assert shown.count(HEADER) > 2
    assert excerpt([*NOISE, *lines]) == lines
    assert excerpt([*NOISE, f"50%|#  |{lines[0]}", *lines[1:]]) == lines
    ranked = [f"[rank1]: {line}" for line in lines]
    assert excerpt([*NOISE, *ranked]) == ranked


def test_a_traceback_that_is_too_long_loses_its_middle() -> None:
    long = a_traceback(frames=200)
    shown = excerpt([*NOISE, *long])
    assert shown[0] == HEADER
    assert shown[1] == omitted(len(long) - len(shown) + 1)
    assert shown[2:] == long[-len(shown) + 2 :]
    assert len(shown) <= TRACEBACK_LINES_MOST
    assert sum(len(line.encode()) + 1 for line in shown) <= SIZE_MOST_BYTES


def test_what_follows_a_traceback_is_cut_in_its_middle_too() -> None:
    shown = excerpt([*a_traceback(), *(f"frame #{number}" for number in range(150))])
    assert shown[: len(a_traceback())] == a_traceback()
    assert shown[len(a_traceback())] == omitted(150 - (len(shown) - len(a_traceback()) - 1))
    assert shown[-1] == "frame #149"
    assert len(shown) <= TRACEBACK_LINES_MOST


def test_it_keeps_its_bounds_whatever_the_lines_are() -> None:
    shown = excerpt([HEADER, *("é" * SIZE_MOST_BYTES for _ in range(5)), "the reason"])
    assert (shown[0], shown[-1]) == (HEADER, "the reason")
    assert sum(len(line.encode()) + 1 for line in shown) <= SIZE_MOST_BYTES
