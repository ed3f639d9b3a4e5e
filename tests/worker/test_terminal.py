"""Trainers' lines on the terminal."""

import io

from agents.worker.terminal import Echo
from messages.ids import Rank


class Stuck(io.StringIO):
    """A terminal that was closed."""

    def write(self, _text: str) -> int:
        raise BrokenPipeError


def test_each_line_stands_after_its_rank_on_the_stream_it_came_from() -> None:
    out, err = io.StringIO(), io.StringIO()
    echo = Echo(out, err)
    echo.add(Rank(0), ["one", "two"], stderr=False)
    echo.add(Rank(3), ["oops"], stderr=True)
    assert echo.close()
    assert (out.getvalue(), err.getvalue()) == ("[0] one\n[0] two\n", "[3] oops\n")


def test_a_terminal_that_is_gone_disturbs_nobody() -> None:
    echo = Echo(Stuck(), Stuck())
    for _ in range(20_000):
        echo.add(Rank(0), ["line"], stderr=False)
    assert echo.close()
