"""`python -m tests.allocator --seed 7` replays one seed and prints its events; `--seeds 300` runs many."""

import sys

from tests.allocator.simulation import simulate
from tests.simulation.seeds import replay

if __name__ == "__main__":
    sys.exit(replay("tests.allocator", __doc__, simulate))
