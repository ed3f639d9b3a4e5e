"""Runs the command `tradewind simulator` as `python -m simulator`."""

import sys

from runtime.errors import UserError
from runtime.process import tell
from simulator.command import simulator

if __name__ == "__main__":
    try:
        simulator()
    except UserError as error:
        sys.exit(tell(error))
