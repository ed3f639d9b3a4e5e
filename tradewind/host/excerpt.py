"""The part of a failed trainer's standard error that is shown: its last traceback, otherwise its last lines."""

import re
from collections.abc import Sequence
from typing import Final

LINES_MOST: Final = 20
TRACEBACK_LINES_MOST: Final = 60
SIZE_MOST_BYTES: Final = 4 * 1024
_GAP_BYTES: Final = 64
"""Size of the line with the number of omitted lines."""

_RANK: Final = r"(?:\[rank\d+\]: ?)?"
"""torch's prefix of each line of a traceback."""
_HEADER: Final = re.compile(
    r"(?:^|(?<=\S)|(?<=[^\s|])\s+)"
    rf"(?P<header>{_RANK}(?:  \+ Exception Group |(?<!Exception Group ))Traceback \(most recent call last\):\s?)$"
)
"""The first line of a traceback. It may follow a progress bar, which has no line end. Tracebacks inside a group follow
`| `."""
_LINK: Final = re.compile(
    _RANK + r"(?:During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception):"
)
_INSIDE: Final = re.compile(_RANK + r"(?:\s|$)")
_LINK_REACH: Final = 2
"""Maximum number of lines from the line that links two tracebacks to the second traceback."""


def excerpt(lines: Sequence[str]) -> list[str]:
    found = {number: match["header"] for number, line in enumerate(lines) if (match := _HEADER.search(line))}
    lines, headers = [found.get(number, line) for number, line in enumerate(lines)], [*found]
    if not headers:
        return _last(lines, LINES_MOST, SIZE_MOST_BYTES)
    for start in (_first_of_chain(lines, headers), headers[-1]):
        if len(lines) - start <= TRACEBACK_LINES_MOST and _size(lines[start:]) <= SIZE_MOST_BYTES:
            return list(lines[start:])
    return _without_the_middle(lines[headers[-1] :])


def _first_of_chain(lines: Sequence[str], headers: Sequence[int]) -> int:
    first = headers[-1]
    for earlier in reversed(headers[:-1]):
        if not any(_LINK.match(line) for line in lines[max(earlier, first - _LINK_REACH) : first]):
            break
        first = earlier
    return first


def _without_the_middle(lines: Sequence[str]) -> list[str]:
    """Returns the traceback if it is short, otherwise its first line; then the last lines."""
    end = next((number for number, line in enumerate(lines[1:], 1) if not _INSIDE.match(line)), len(lines))
    head = list(lines[: end + 1])
    if len(head) > TRACEBACK_LINES_MOST // 2 or _size(head) > SIZE_MOST_BYTES // 2:
        head = [lines[0]]
    rest = lines[len(head) :]
    last = _last(rest, TRACEBACK_LINES_MOST - len(head) - 1, SIZE_MOST_BYTES - _size(head) - _GAP_BYTES)
    return [*head, omitted(len(rest) - len(last)), *last]


def omitted(lines: int) -> str:
    return f"  … {lines} lines omitted …"


def _last(lines: Sequence[str], most: int, room: int) -> list[str]:
    """Returns as many of the last lines as fit; the first of them may be cut."""
    kept: list[str] = []
    for line in reversed(lines[-most:]):
        cut = line.encode()[:room].decode(errors="ignore")
        kept.append(cut)
        room -= len(cut.encode()) + 1
        if cut != line or room <= 0:
            break
    return kept[::-1]


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)
