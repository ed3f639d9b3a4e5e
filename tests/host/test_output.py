from tradewind.host.excerpt import LINES_MOST as TAIL_LINES
from tradewind.host.excerpt import SIZE_MOST_BYTES as TAIL_BYTES
from tradewind.host.output import LINE_LIMIT_BYTES, Lines, Tail


def test_lines_are_whole_however_the_bytes_arrive() -> None:
    text = "loss 0.5\n\nübergröße ✓\nlast"
    for size in (1, 2, 3, 7, 1000):
        lines = Lines()
        data = text.encode()
        got = [line for start in range(0, len(data), size) for line in lines.feed(data[start : start + size])]
        assert [*got, *lines.finish()] == text.split("\n")


def test_a_stream_that_ends_with_a_line_end_has_no_further_line() -> None:
    lines = Lines()
    assert lines.feed(b"done\n") == ["done"]
    assert lines.finish() == []


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    assert Lines().feed(b"a\xff\xfeb\n") == ["a\ufffd\ufffdb"]


def test_a_line_that_is_too_long_is_cut_and_says_so() -> None:
    lines = Lines()
    for _ in range(10):
        assert lines.feed(b"x" * LINE_LIMIT_BYTES) == []
    (line, after) = lines.feed(b"\nafter\n")
    assert line == "x" * LINE_LIMIT_BYTES + f" … [{9 * LINE_LIMIT_BYTES} bytes cut]"
    assert after == "after"


def test_a_progress_bar_is_one_line_with_its_last_state() -> None:
    lines = Lines()
    assert lines.feed(b"\r 10%") == []
    assert lines.feed(b"\r 50%\r") == []
    assert lines.feed(b"\r100%\r\nnext\r") == ["100%"]
    assert lines.feed(b"\n") == ["next"]


def test_a_progress_bar_that_runs_for_ever_is_never_cut() -> None:
    lines = Lines()
    for percent in range(100_000):
        lines.feed(b"\r%7d" % percent)
    assert lines.finish() == ["  99999"]


def test_a_progress_bar_is_shown_while_it_runs_at_most_once_a_second() -> None:
    lines = Lines()
    shown = []
    for tenth in range(100):
        assert lines.feed(b"\r%3d%%" % tenth) == []
        shown.append(lines.update(tenth / 10))
    updates = [update for update in shown if update is not None]
    assert updates == [f"{percent:3}%" for percent in range(0, 100, 10)]
    assert lines.feed(b"\r100%\nnext\n") == ["100%", "next"]
    assert lines.update(20.0) is None


def test_the_last_state_of_a_bar_that_stands_still_is_due_after_a_second() -> None:
    lines = Lines()
    assert lines.due_s is None
    lines.feed(b"\r 10%")
    assert lines.update(5.0) == " 10%"
    assert lines.due_s is None
    lines.feed(b"\r 20%")
    assert lines.update(5.5) is None
    assert lines.due_s == 6.0
    assert lines.update(6.0) == " 20%"
    assert lines.due_s is None


def test_what_was_shown_already_is_not_shown_again_when_its_line_ends() -> None:
    lines = Lines()
    lines.feed(b"\r100%")
    assert lines.update(1.0) == "100%"
    assert lines.feed(b"\nnext\r") == []
    assert lines.update(3.0) == "next"
    assert lines.feed(b"\n100%\n100%\n") == ["100%", "100%"]
    lines.feed(b"\rlast")
    assert lines.update(5.0) == "last"
    assert lines.finish() == []


def test_the_tail_has_the_last_state_of_a_bar_though_it_was_shown_already() -> None:
    tail = Tail()
    lines = Lines(tail)
    lines.feed(b"\r 10%")
    assert lines.update(1.0) == " 10%"
    lines.feed(b"\r 90%")
    assert lines.update(3.0) == " 90%"
    assert lines.feed(b"\n") == []
    lines.feed(b"\rlast")
    assert (lines.update(5.0), lines.finish()) == ("last", [])
    assert tail.lines() == [" 90%", "last"]


def test_a_line_without_a_carriage_return_is_no_progress_bar() -> None:
    lines = Lines()
    lines.feed(b"Downloading ...")
    assert (lines.update(9.0), lines.due_s) == (None, None)
    assert lines.feed(b" done\n") == ["Downloading ... done"]


def test_a_bar_that_is_wiped_out_is_not_shown_as_an_empty_line() -> None:
    lines = Lines()
    lines.feed(b"\r100%\r    \r")
    assert (lines.update(9.0), lines.due_s) == (None, None)
    assert lines.feed(b"done\n") == ["done"]


def test_the_tail_shows_the_last_lines_within_its_bounds() -> None:
    tail = Tail()
    tail.add(f"line {number}" for number in range(1000))
    assert tail.shown() == [f"line {number}" for number in range(1000 - TAIL_LINES, 1000)]
    assert len(tail.lines()) > TAIL_LINES
    tail.add(["é" * TAIL_BYTES, "the reason"])
    shown = tail.shown()
    assert shown[-1] == "the reason"
    assert sum(len(line.encode()) for line in shown) <= TAIL_BYTES
