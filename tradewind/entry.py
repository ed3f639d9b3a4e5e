"""Where the command begins: before anything else is loaded, Ctrl-C ends it without a word.

Loading takes a moment, in which there is nothing to clean up; the commands' own handling takes over when they run.
"""

import os
import signal

EXIT_INTERRUPTED = 130


def main() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(EXIT_INTERRUPTED))
    from tradewind.cli import main as command

    command()
