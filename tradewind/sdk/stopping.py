"""When a run ends: after its last step, or after the step in which the script asks for it on any rank.

The request is a flag in the control words of a step, so all ranks end after the same one. It stays raised until a step
carries it: if the all-reduce breaks, the step is computed again and carries it then.
"""

import atexit
import sys
from typing import Final

from tradewind.sdk.checkpoint import say
from tradewind.sdk.tail import Agreed

_LEFT: Final = (
    "the loop was left in step {step}, before its last one: other ranks may still wait for this one, and no checkpoint "
    "is written. To end a run early call run.stop() instead of break: all ranks end after the same step"
)


class Ending:
    def __init__(self, steps: int) -> None:
        self.planned = steps
        self.steps = steps
        """The number of steps after which the run is over, as far as is known now."""
        self.asked = False
        """This rank's script wants the run to end."""

    @property
    def is_early(self) -> bool:
        return self.steps < self.planned

    def ask(self) -> None:
        self.asked = True

    def learn(self, agreed: Agreed) -> None:
        """From every all-reduce: all ranks hear the same, also those that join or catch up."""
        if agreed.over:
            self.steps = min(self.steps, agreed.step)
        elif agreed.stops:
            self.steps = min(self.steps, agreed.step + 1)


def remark_on_leaving(step: int) -> None:
    """Says at the end of the process how to leave a loop, unless an error has ended it: then that is what counts."""
    atexit.register(_remark, step)


def _remark(step: int) -> None:
    if getattr(sys, "last_value", None) is None:
        say(_LEFT.format(step=step))
