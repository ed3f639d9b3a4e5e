"""Refusals of requests of a person."""

from runtime.errors import UserError

BUS_AWAY = "the bus is unreachable"


class JobUnknown(UserError):
    def __init__(self, name: str) -> None:
        super().__init__(f"There is no job {name!r}.", "tradewind status")


class JobExists(UserError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"Job {name!r} already exists.",
            f"tradewind status {name}; if it has ended, submit with --replace, or choose another name",
        )


class JobUnreadable(UserError):
    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"The record of job {name!r} cannot be read: {why}.",
            "start a master of the version that wrote it; the job's cloud resources stay",
        )


JOB_REFUSED = "The job is refused:"


class SpecRefused(UserError):
    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__(JOB_REFUSED, "correct these fields and submit it again", problems)


def has_ended(name: str, phase: str) -> str:
    return f"Job {name!r} has {phase}."


class RemoveRefused(UserError):
    pass


class ScaleRefused(UserError):
    pass


class ReloadRefused(UserError):
    pass


class BudgetRefused(UserError):
    pass


class CostUnknown(UserError):
    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"The cost of job {name!r} is unknown, because its ledger cannot be read: {why}.",
            "start a master of the version that wrote it, or see docs/cost.md",
        )


class NotRecorded(UserError):
    """The change is requested, but was not saved within the time limit."""

    def __init__(self, name: str) -> None:
        super().__init__(f"The change of job {name!r} is not saved yet.", f"tradewind status {name}")


class NotLeading(UserError):
    """The request had no effect; the current leader can perform it."""

    def __init__(self) -> None:
        super().__init__("This master no longer leads.", "try again in a moment")


class HandedOver(UserError):
    """The job is stored, but the next leader starts it."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Job {name!r} is stored, but this master no longer leads; the next leader starts the job.",
            f"tradewind status {name}",
        )
