"""How asking a master fails: what a person can correct is a `UserError`, a master that is away a `MasterAway`."""

import difflib

from runtime.errors import Temporary, UserError


class MasterAway(Temporary):
    """No answer just now; it may or may not have done what it was asked."""

    def __init__(self, sentence: str, hint: str) -> None:
        super().__init__(sentence)
        self.hint = hint


class NotAsked(MasterAway):
    """Nobody was there, or one that does not lead: surely nothing was done."""


class NotLeading(NotAsked):
    def __init__(self, url: str, leader: str) -> None:
        known = f"; the one at {leader} leads." if leader else ", and no leader is known yet."
        hint = f"export TRADEWIND_API_URL={leader}, or both with a comma" if leader else "retry in a few seconds"
        super().__init__(f"The master at {url} is a standby{known}", hint)
        self.leader = leader


class JobUnknown(UserError):
    def __init__(self, name: str, known: list[str]) -> None:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        meant = f" Did you mean {' or '.join(repr(one) for one in near)}?" if near else ""
        super().__init__(f"There is no job {name!r}.{meant}", "tradewind status")


def unreachable(url: str, why: str, *, was_asked: bool = True) -> MasterAway:
    kind = MasterAway if was_asked else NotAsked
    hint = "start one with `tradewind master`, or export TRADEWIND_API_URL=http://HOST:PORT of another"
    return kind(f"The master at {url} cannot be reached: {why}.", hint)


def could_not_answer(url: str, why: str, hint: str = "") -> MasterAway:
    """It, or a proxy before it, answers that it cannot."""
    return MasterAway(
        f"The master at {url} could not answer: {why}.", hint or "look at the master's log, and ask again"
    )
