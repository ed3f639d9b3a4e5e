"""The text that rich prints for a renderable."""

import io

from rich.console import Console, RenderableType


def drawn(what: RenderableType) -> str:
    output = io.StringIO()
    Console(file=output, width=120).print(what)
    return output.getvalue()
