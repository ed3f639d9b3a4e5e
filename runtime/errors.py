"""Failures with a name. Adapters translate library errors into these at one boundary; the rest ends the process."""


class TradewindError(Exception):
    """Anything of ours that can go wrong in a known way."""


class UserError(TradewindError):
    """A mistake that a person can correct: one sentence, and what to try."""

    def __init__(self, sentence: str, hint: str = "", problems: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint
        self.problems = problems
        """One line each, where one sentence is not enough."""

    def __str__(self) -> str:
        lines = [self.sentence, *(f"  {problem}" for problem in self.problems)]
        return "\n".join(lines)


class BusAway(UserError):
    """No NATS server answers at this address, which may be right: it may be started later."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"No NATS server answers at {url} ({why})", "start one with: nats-server -js, or set TRADEWIND_NATS_URL"
        )
        self.url = url
        self.why = why


class Temporary(TradewindError):
    """May work when tried again later, unchanged."""


class Permanent(TradewindError):
    """Will fail again however often it is tried."""


class BusUnavailable(Temporary):
    """The bus did not take it, or not in time: it may or may not have happened."""


class TooLarge(BusUnavailable):
    """It has more bytes than the server accepts and was not sent. No process ends for it: it counts as not done."""


class NoAnswer(Temporary):
    """Nobody answered a request in time, or nobody is there to answer."""


class Conflict(Permanent):
    """Somebody else wrote first: read again, then decide again."""


class BusRefused(Permanent):
    """The bus understood and said no."""


class BusClosed(Permanent):
    """The connection has ended for good: it was drained, or it failed."""
