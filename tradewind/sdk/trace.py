"""What happened when, for measurements: with TRADEWIND_TRACE=FOLDER each trainer writes one line for each event.

A line is JSON: `at` in seconds of the machine's monotonic clock, `what`, and the rank, generation and step.
"""

import json
import os
import time
from pathlib import Path
from typing import Final, TextIO

VARIABLE: Final = "TRADEWIND_TRACE"


class Trace:
    def __init__(self, folder: str | None) -> None:
        self._file: TextIO | None = None
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._file = (Path(folder) / f"{os.getpid()}.jsonl").open("a", buffering=1)

    def __call__(self, what: str, rank: int, generation: int, step: int, **fields: object) -> None:
        if self._file is not None:
            event = {"at": time.monotonic(), "what": what, "rank": rank, "generation": generation, "step": step}
            self._file.write(json.dumps(event | fields) + "\n")
