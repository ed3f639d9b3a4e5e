"""Draw `demo.svg`, the picture in the README, from `demo.ansi`, a recorded terminal.

`make picture` records `make demo` again (about three minutes) and draws it. Without `--record`, this script only draws.
"""

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

FOLDER = Path(__file__).parent
RECORDING = FOLDER / "demo.ansi"
PICTURE = FOLDER / "demo.svg"
DEMO = [str(Path(sys.executable).with_name("tradewind")), "demo"]
COLUMNS, LINES = 124, 48
LINES_BELOW_TABLE = 3
"""Lines of the report that follow its table in the picture: totals, pauses, certificate."""
REDRAWN = re.compile(r"(?:\r|\x1b\[1A|\x1b\[2K|\x1b\[\?25[hl])+")
"""The control codes between two drawings of the live view."""
ALERT = "\x1b[1;31m"
"""The colour of an event that the demo itself caused."""
TEMPLATE = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<!-- Drawn by docs/pictures/render.py. -->
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px;
  line-height: {line_height}px;
  font-variant-east-asian: full-width;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def record(command: list[str]) -> str:
    """Run a command in a terminal of a fixed size and return everything that it prints."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(LINES))
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    printed = b""
    while chunk := _read(terminal):
        printed += chunk
    _, status = os.waitpid(pid, 0)
    if status:
        sys.exit(f"The demo failed; the picture stays as it is. Its output:\n{printed.decode()[-4000:]}")
    return printed.decode()


def _read(terminal: int) -> bytes:
    """Return the next output, or nothing at the end, which Linux reports as an error."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""


def excerpt(printed: str) -> str:
    """Return the last drawing of the live view with an event of the demo in it, and the first lines of the report."""
    *drawings, report = REDRAWN.split(printed.replace("\r\n", "\n"))
    live = [drawing for drawing in drawings if ALERT in drawing][-1]
    table, below, *_ = report.strip("\n").split("\n\n")
    lines = [*live.splitlines(), "", *table.splitlines(), "", *below.splitlines()[:LINES_BELOW_TABLE]]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def drawn(recording: str) -> str:
    """Return the recording as SVG, without fonts of another host."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), color_system="truecolor", force_terminal=True)
    console.print(Text("$ make demo\n", style="bold"))
    console.print(Text.from_ansi(recording), soft_wrap=True)
    return console.export_svg(title="make demo", theme=SVG_EXPORT_THEME, code_format=TEMPLATE, unique_id="demo")


if __name__ == "__main__":
    if "--record" in sys.argv[1:]:
        RECORDING.write_text(excerpt(record(DEMO)))
    PICTURE.write_text(drawn(RECORDING.read_text()))
