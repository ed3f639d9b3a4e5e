"""`python -m tests.lease --seed 7` replays one seed and tells its story; `--seeds 300` runs many."""

import sys

from tests.lease.simulation import simulate
from tests.simulation.seeds import replay

if __name__ == "__main__":
    sys.exit(replay("tests.lease", __doc__, simulate))
