"""Named failures. Adapters translate library errors into these at one boundary; all other errors end the process."""

from typing import ClassVar

from runtime.exit_codes import EXIT_FAILED, EXIT_UNREACHABLE, EXIT_USER_ERROR


class TradewindError(Exception):
    """Base of all expected failures."""

    kind: ClassVar[str] = "failed"
    """The name of the failure for programs."""
    exit_code: ClassVar[int] = EXIT_FAILED
    hint: str = ""
    """What to try."""
    problems: tuple[str, ...] = ()
    """One line each, where one sentence is not enough."""


class UserError(TradewindError):
    """A mistake that a person can correct: a message, and a hint what to try."""

    kind = "wrong_use"
    exit_code = EXIT_USER_ERROR

    def __init__(self, message: str, hint: str = "", problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.problems = problems

    def __str__(self) -> str:
        lines = [self.message, *(f"  {problem}" for problem in self.problems)]
        return "\n".join(lines)


class BusAway(UserError):
    """No NATS server answers at this address. The address may be right: the server may start later."""

    kind = "bus_unreachable"
    exit_code = EXIT_UNREACHABLE

    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"No NATS server answers at {url} ({why})", "start one with: nats-server -js, or set TRADEWIND_NATS_URL"
        )
        self.url = url
        self.why = why


class Temporary(TradewindError):
    """A failure after which a retry may succeed."""

    kind = "unreachable"
    exit_code = EXIT_UNREACHABLE


class Permanent(TradewindError):
    """A failure that a retry does not cure."""


class BusUnavailable(Temporary):
    """The bus did not accept an operation, or not in time. The operation may have happened."""

    kind = "bus_unreachable"


class TooLarge(BusUnavailable):
    """A message has more bytes than the server accepts and was not sent. No process ends because of it."""


class NoAnswer(Temporary):
    """A request has no responder, or got no answer in time."""


class Conflict(Permanent):
    """Another process wrote first. Read again, then decide again."""


class BusRefused(Permanent):
    """The bus understood an operation and refused it."""

    kind = "bus_refused"


class BusClosed(Permanent):
    """The connection to the bus has ended for good: it was closed, or it failed."""
