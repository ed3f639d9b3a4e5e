"""Errors that a script may catch. All of them are exported by `tradewind`."""


class PeerLost(RuntimeError):
    """A rank of this world is gone, and without a worker-agent nobody forms another world."""


class NonfiniteStep(RuntimeError):
    """A loss or gradient that is NaN or infinite ends the run; every rank raises it in the same step."""


class ReadFailed(RuntimeError):
    """The dataset raised: the message names the samples that were asked for, and its cause is what was raised."""


class StateDoesNotFit(ValueError):
    """The state is of another model or another optimizer; the message says what differs first."""


class ScriptMismatch(ValueError):
    """This script does not match the running job that it should join; the message says what differs."""
