"""Text from outside neither forges a line nor commands a terminal."""

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.plain_text import plain, plain_lines, script_line

NASTY = "a[1] \n\r\v\f\x1b\x85\x9b\u2028\u2029\u202e\u2066m0;\b\ud800"
TEXT = st.text(st.characters()) | st.text(st.sampled_from(NASTY))
DIRECTIONS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def is_safe(text: str) -> bool:
    """Nothing in it ends a line, commands a terminal or turns the direction of writing."""
    harmless = all(unicodedata.category(each) not in ("Cc", "Cs", "Zl", "Zp") or each == "\t" for each in text)
    return harmless and not set(DIRECTIONS) & set(text) and len(text.splitlines()) <= 1


@settings(max_examples=50)
@given(TEXT)
def test_plain_text_is_one_line_and_safe(text: str) -> None:
    assert is_safe(plain(text))


@settings(max_examples=50)
@given(TEXT)
def test_each_of_several_lines_is_safe(text: str) -> None:
    lines = plain_lines(text)
    assert lines
    assert all(map(is_safe, lines))


@settings(max_examples=50)
@given(TEXT)
def test_everything_of_a_script_stands_behind_its_rank(text: str) -> None:
    for shown in re.split("[\r\n]", script_line(7, text)):
        assert shown.startswith("[7] ")
        without_colours = re.sub("\x1b\\[[0-9;:]*m", "", shown)
        assert is_safe(without_colours)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("harmless: 3 × „é“ 🎉\tend", "harmless: 3 × „é“ 🎉\tend"),
        ("ended\n12:00:00  the job has succeeded", r"ended\n12:00:00  the job has succeeded"),
        ("\x1b[2J\x1b]0;title\a", r"\x1b[2J\x1b]0;title\x07"),
        ("abc\u202edef", r"abc\u202edef"),
    ],
)
def test_what_is_unsafe_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("step 1", "[0] step 1"),
        ("\x1b[32mgreen\x1b[0m", "[0] \x1b[32mgreen\x1b[0m"),
        ("\x1b[8mhidden", "[0] \x1b[8mhidden\x1b[0m"),
        ("10 %\r20 %", "[0] 10 %\r[0] 20 %"),
        ("\x1b[A\x1b[2Kbar\b\b", "[0] bar"),
        ("loss\n[1] forged", "[0] loss\n[0] [1] forged"),
    ],
)
def test_a_script_keeps_its_colours_and_progress_bars(line: str, shown: str) -> None:
    assert script_line(0, line) == shown
