"""The file of golden messages: a name in brackets, then the message, indented."""

from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).with_name("messages.txt")
INDENT = "    "


def read() -> dict[str, str]:
    messages: dict[str, list[str]] = {}
    name = ""
    for line in FILE.read_text().splitlines():
        if line.startswith("["):
            name = line[1:-1]
            messages[name] = []
        elif line.startswith(INDENT):
            messages[name].append(line.removeprefix(INDENT))
    return {name: "\n".join(lines) for name, lines in messages.items()}


def write(messages: Mapping[str, str]) -> None:
    parts = (
        f"[{name}]\n" + "".join(f"{INDENT}{line}\n" for line in text.splitlines()) for name, text in messages.items()
    )
    FILE.write_text("\n".join(parts))
