"""The entry point of the command. While modules load, ctrl-C ends it without output: there is nothing to clean up."""

import os
import signal

from runtime.exit_codes import EXIT_INTERRUPTED


def main() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(EXIT_INTERRUPTED))
    from tradewind.cli import main as command

    command()
