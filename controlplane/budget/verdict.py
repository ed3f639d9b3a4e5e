"""Whether a job may go on spending. Its numbers are the why."""

from dataclasses import dataclass
from enum import StrEnum

from controlplane.budget.account import RELEASE_S, Account
from controlplane.catalog.money import MicroDollars, usd_text


class Purse(StrEnum):
    WITHIN = "within"
    SCARCE = "scarce"
    """There is time to let the dearest machines go, and to let the others go after them if that was not enough."""
    SPENT = "spent"
    """What is left is needed to give the machines back."""


@dataclass(frozen=True, slots=True)
class Verdict:
    purse: Purse
    why: str
    enough: str = ""
    """Of a raise, to allow what was forbidden."""


def judge(total: MicroDollars, account: Account) -> Verdict:
    left = total - account.spent - account.assumed
    if left <= account.reserve:
        purse = Purse.SPENT
    elif left <= 2 * account.reserve:
        purse = Purse.SCARCE
    else:
        purse = Purse.WITHIN
    enough = f"a raise has to leave more than {usd_text(2 * account.reserve)}"
    return Verdict(purse, _numbers(total, account), enough)


def _numbers(total: MicroDollars, account: Account) -> str:
    spent, reserve = usd_text(account.spent), usd_text(account.reserve)
    kept = f"up to {reserve} are needed to give machines back, which may take {RELEASE_S:g} s"
    unseen = (
        f", up to {usd_text(account.assumed)} more since the cloud last listed its machines" if account.assumed else ""
    )
    return f"{spent} of {usd_text(total)} USD are spent{unseen}, and {kept}"
