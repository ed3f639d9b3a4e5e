"""Errors that a script may catch. `tradewind` exports all of them."""


class PeerLost(RuntimeError):
    """Another rank is lost, and no worker-agent runs that could form the next world."""


class NonfiniteStep(RuntimeError):
    """A loss or gradient is NaN or infinite, and this ends the run. All ranks raise it in the same step."""


class ReadFailed(RuntimeError):
    """The dataset raised an error, or `__getitems__` returned a wrong number of samples.

    The message names the requested samples. `__cause__` is the error of the dataset, if it raised one.
    """


class StateDoesNotFit(ValueError):
    """A checkpoint, or the state that other ranks sent, does not fit this script.

    It belongs to another model or optimizer, uses an unknown dtype or format, or is incomplete. The message names the
    first difference.
    """


class ScriptMismatch(ValueError):
    """This script or its settings differ from the running job that it should join.

    The message names the differences.
    """
