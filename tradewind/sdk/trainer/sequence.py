"""The order of a training thread's acts: the trainer's state and the outcome of the last act decide the next act.

The training thread performs the acts with torch (`tradewind/sdk/training.py`); the joint simulation performs them in
virtual time.
"""

from collections.abc import Callable, Generator
from enum import Enum, auto
from typing import Final

from tradewind.protocol.trainer import Ranges
from tradewind.sdk.trainer.state import Trainer

CLOSING_S: Final = 30.0
"""Seconds that a finished run waits for ranks that are still joining."""


class Act(Enum):
    COMPUTE = auto()
    """Compute a part of the remaining share."""
    STEP = auto()
    """All-reduce the current step, and commit it."""
    CLOSE = auto()
    """All-reduce control words only: all steps are done, and the ranks agree to end."""
    AWAIT_WORLD = auto()
    """Wait for a world that this rank enters by itself."""
    START = auto()
    """Agree with the other ranks of a first world on one state."""
    HAND_ON = auto()
    """Take part in the broadcast of the last step to the ranks that miss it."""
    FORGET = auto()
    """Drop the gradients of the current step: they do not count in this world."""
    BEGIN_JOIN = auto()
    """Enter without the state: begin to receive it."""
    JOIN_STEP = auto()
    """Take part in an all-reduce without gradients, and record the step."""
    CATCH_UP = auto()
    """Load the state if it has arrived, and apply the steps recorded since."""
    END_JOIN = auto()
    """End the join: the rank has the state and takes a share, or the world is dead."""
    REPORT_SWITCH = auto()
    """Report that the world changed with the last all-reduce, and serve the ranks that join."""


class Came(Enum):
    """The outcome of an act; None for acts after which there is nothing to decide."""

    DEAD = auto()
    """The world is dead."""
    SAME = auto()
    """The world is the same as before."""
    SWITCHED = auto()
    """The world changed with this all-reduce."""
    OVER = auto()
    """All ranks have all steps."""


Acts = Generator[Act, Came | None, None]


def acts(trainer: Callable[[], Trainer], todo: Callable[[], Ranges]) -> Acts:
    """Yields the acts of a whole run. `todo` returns the part of the rank's share that is not yet computed."""
    yield from _enter(trainer)
    while True:
        if todo():
            yield Act.COMPUTE
            continue
        state = trainer()
        came = yield Act.CLOSE if state.done >= state.steps else Act.STEP
        if came is Came.OVER:
            return
        if came is Came.DEAD:
            yield from _enter(trainer)
        elif came is Came.SWITCHED:
            yield Act.REPORT_SWITCH


def advance(order: Acts, came: Came | None) -> Act | None:
    """Returns the next act; None after the last."""
    try:
        return order.send(came)
    except StopIteration:
        return None


def is_over(active: tuple[bool, ...], waited_s: float) -> bool:
    """True if a finished run ends: joining ranks get the state first, but for at most CLOSING_S."""
    return all(active) or waited_s >= CLOSING_S


def _enter(trainer: Callable[[], Trainer]) -> Acts:
    """Yields the acts that enter the next world."""
    yield Act.AWAIT_WORLD
    state = trainer()
    world = state.world
    assert world is not None
    if world.assign.entry == "start":
        yield Act.START
        return
    if world.is_active and not state.keeps_gradients:
        yield Act.FORGET
    if world.assign.laggards:
        came = yield Act.HAND_ON
        if came is Came.DEAD:
            return
    if not world.is_active:
        yield Act.FORGET
        yield from _join(trainer)


def _join(trainer: Callable[[], Trainer]) -> Acts:
    yield Act.BEGIN_JOIN
    came = yield Act.JOIN_STEP
    while came is not Came.DEAD and not trainer().is_active:
        yield Act.CATCH_UP
        came = yield Act.JOIN_STEP
    if came is Came.SWITCHED:
        yield Act.REPORT_SWITCH
    yield Act.END_JOIN
