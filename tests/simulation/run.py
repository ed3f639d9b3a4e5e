"""One seed of the joint simulation, from its setting to its outcome."""

from tests.simulation.live_system import LiveSystem
from tests.simulation.pauses import Pausing, PausingLive
from tests.simulation.settings import Setting, setting_of
from tests.simulation.system import Outcome, System

SYSTEMS: dict[tuple[bool, bool], type[System]] = {
    (False, False): System,
    (True, False): LiveSystem,
    (False, True): Pausing,
    (True, True): PausingLive,
}
"""Systems by two flags: the script uses the SDK; the job is paused."""


def simulate(seed: int, setting: Setting | None = None) -> Outcome:
    chosen = setting or setting_of(seed)
    return SYSTEMS[chosen.is_live, chosen.has_pauses](seed, chosen).run()
