"""What a person may ask for and not get, and why."""

from runtime.errors import UserError


class JobUnknown(UserError):
    def __init__(self, name: str) -> None:
        super().__init__(f"There is no job {name!r}.", "tradewind status")


class JobExists(UserError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is a job {name!r} already.",
            f"tradewind status {name}; if it has ended, submit with --replace, or give the new one another name",
        )


class JobUnreadable(UserError):
    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"There is a job {name!r}, but its record cannot be read: {why}.",
            "a master of the version that wrote it; what the job has in the cloud is kept",
        )


class SpecRefused(UserError):
    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("The job cannot be used:", "correct these fields and submit it again", problems)


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
            f"What job {name!r} has cost is not known, because its ledger cannot be read: {why}.",
            "a master of the version that wrote it; what else can be done is in docs/cost.md",
        )


class NotRecorded(UserError):
    """Asked for, and perhaps done: whoever asked has waited long enough."""

    def __init__(self, name: str) -> None:
        super().__init__("The change is not recorded yet.", f"tradewind status {name}")


class NotLeading(UserError):
    """Nothing was done: it can be asked again, of whoever leads."""

    def __init__(self) -> None:
        super().__init__("This master does not lead any more.", "try again in a moment")


class HandedOver(UserError):
    """Done, and not begun here."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Job {name!r} was taken, but this master does not lead any more: whoever leads next begins it.",
            f"tradewind status {name}",
        )
