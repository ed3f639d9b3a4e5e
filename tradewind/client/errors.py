"""Errors of requests to a master: a `UserError` if a person can correct it, a `MasterAway` if a retry may help."""

import difflib

from runtime.errors import Temporary, UserError


class MasterAway(Temporary):
    """No answer: the master may or may not have received the request."""

    kind = "master_unreachable"

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class NotAsked(MasterAway):
    """No master received the request, or only a standby: nothing was done."""


class NotLeading(NotAsked):
    """The master is a standby."""

    kind = "not_leading"

    def __init__(self, url: str, leader: str) -> None:
        known = f"; the leader is at {leader}." if leader else ", and no leader is known yet."
        hint = f"export TRADEWIND_API_URL={leader}, or both with a comma" if leader else "retry in a few seconds"
        super().__init__(f"The master at {url} is a standby{known}", hint)
        self.leader = leader


class JobUnknown(UserError):
    kind = "unknown_job"

    def __init__(self, name: str, known: list[str]) -> None:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        meant = f" Did you mean {' or '.join(repr(one) for one in near)}?" if near else ""
        super().__init__(f"There is no job {name!r}.{meant}", "tradewind status")


def unreachable(url: str, why: str, *, was_asked: bool = True) -> MasterAway:
    kind = MasterAway if was_asked else NotAsked
    hint = "start one with `tradewind master`, or export TRADEWIND_API_URL=http://HOST:PORT of another"
    return kind(f"The master at {url} cannot be reached: {why}.", hint)


def could_not_answer(url: str, why: str, hint: str = "") -> MasterAway:
    """The error for a status of 500 or more, from the master or a proxy."""
    return MasterAway(f"The master at {url} could not answer: {why}.", hint or "look at the master's log, and retry")
