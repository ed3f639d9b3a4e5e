"""Text from outside, made safe to print: it can neither forge a line of Tradewind nor control the terminal.

Workers, scripts and anybody on the bus choose the texts of events, errors and names. Control characters, line
separators and marks that reverse the direction of writing are shown as escapes, such as `\\x1b`.
"""

import re

_LINE_ENDS = re.compile("\r\n|[\n\v\f\x1c-\x1e\x85\u2028\u2029]")
_UNSAFE = re.compile(
    "["
    "\x00-\x08\x0a-\x1f\x7f-\x9f"  # controls except the tab, including ESC and the 8-bit CSI
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # directions of writing
    "\u2028\u2029\ufeff\U000e0000-\U000e007f"  # separators and invisible characters
    "\ud800-\udfff"  # lone surrogates, which no terminal accepts
    "]"
)
_COLOUR = re.compile("\x1b\\[[0-9;:]*m")
_COLOURS_OFF = "\x1b[0m"
_MOVES = re.compile("\x1b\\[(?![0-9;:]*m)[0-?]*[ -/]*[@-~]|[\a\b]")
"""Terminal commands that progress bars print: moves of the cursor, deletions, the bell."""


def plain(text: str) -> str:
    """Returns the text as one safe line."""
    return _UNSAFE.sub(_escaped, text)


def plain_lines(text: str) -> list[str]:
    """Returns the lines of a text, each plain; at least one. The caller marks further lines as continued."""
    return [plain(line) for line in _LINE_ENDS.split(text)]


def script_line(rank: int, line: str) -> str:
    """Returns a line of a script with its rank before each part that a terminal shows at the start of a line.

    Colours remain and end with the line. After a carriage return, as progress bars print it, the rank is repeated.
    Other cursor movements are removed."""
    prefix = f"[{rank}] "
    line = _MOVES.sub("", line)
    parts = [f"\r{prefix}".join(_coloured(piece) for piece in part.split("\r")) for part in _LINE_ENDS.split(line)]
    return "\n".join(prefix + part for part in parts)


def _coloured(text: str) -> str:
    colours = _COLOUR.findall(text)
    if not colours:
        return plain(text)
    pieces = [plain(piece) for piece in _COLOUR.split(text)]
    mixed = "".join(piece + colour for piece, colour in zip(pieces, [*colours, ""], strict=True))
    return mixed if colours[-1] in (_COLOURS_OFF, "\x1b[m") else mixed + _COLOURS_OFF


def _escaped(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode()
