"""The verdict whether a job may continue to spend money; its numbers are the reason."""

from dataclasses import dataclass
from enum import StrEnum

from controlplane.budget.account import RELEASE_S, Account
from controlplane.catalog.money import MicroDollars, usd_text


class Purse(StrEnum):
    WITHIN = "within"
    SCARCE = "scarce"
    """Enough is left to remove the on-demand machines first, and the others later if that does not suffice."""
    SPENT = "spent"
    """Only the reserve for removing the machines is left."""


@dataclass(frozen=True, slots=True)
class Verdict:
    purse: Purse
    why: str
    enough: str = ""
    """The raise that would allow the job to spend again."""


def judge(total: MicroDollars, account: Account) -> Verdict:
    left = total - account.spent - account.assumed
    if left <= account.reserve:
        purse = Purse.SPENT
    elif left <= 2 * account.reserve:
        purse = Purse.SCARCE
    else:
        purse = Purse.WITHIN
    enough = f"a raise must leave more than {usd_text(2 * account.reserve)} USD"
    return Verdict(purse, _numbers(total, account), enough)


def _numbers(total: MicroDollars, account: Account) -> str:
    spent, reserve = usd_text(account.spent), usd_text(account.reserve)
    kept = f"up to {reserve} USD are reserved for removing machines, which may take {RELEASE_S:g} s"
    unseen = (
        f", up to {usd_text(account.assumed)} more since the cloud last listed its machines" if account.assumed else ""
    )
    return f"{spent} of {usd_text(total)} USD are spent{unseen}, and {kept}"
