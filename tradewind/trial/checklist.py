"""The checks in their order, and a run of them that prints one line for each and stops at the spending limit."""

from collections.abc import Awaitable, Callable, Collection, Mapping

from runtime.errors import TradewindError, UserError
from runtime.exit_codes import EXIT_FAILED
from tradewind.trial import job_checks, money_checks, refusal_checks, setup_checks
from tradewind.trial.commands import WouldChange
from tradewind.trial.stage import Trial
from tradewind.trial.verdicts import Result, Verdict, failed, line_of, skipped, summary_of

Check = Callable[[Trial], Awaitable[Verdict]]
Say = Callable[[str], None]

CHECKS: Mapping[str, Check] = {
    "services": setup_checks.services,
    "quotas": setup_checks.quotas,
    "node-account": setup_checks.node_account,
    "gpu": job_checks.gpu,
    "notice": job_checks.notice,
    "preemption": job_checks.preemption,
    "removal": job_checks.removal,
    "stockout": refusal_checks.stockout,
    "quota": refusal_checks.quota,
    "leftovers": money_checks.leftovers,
    "ledger": money_checks.ledger,
}
FREE = frozenset({"services", "quotas", "node-account", "leftovers", "ledger"})
"""Checks that start no machine: they run even if the money is spent."""

CLEANUP_FAILED = "CLEANUP FAILED"
CLEANED_UP = (
    "The job is stopped and the probes are deleted. The clusters stay and cost money: docs/gke.md, Take it down."
)

EXIT_LIMIT = 4
"""The money was spent before the end. `deploy/gke-trial.sh` uses it also for the time."""


async def run_all(trial: Trial, names: Collection[str], max_usd: float, say: Say) -> int:
    """Run the checks. Returns 0 if none failed, 1 if a check failed, 4 if the money was spent before the end."""
    verdicts: list[Verdict] = []
    is_spent = False
    for name, check in CHECKS.items():
        if name not in names:
            continue
        is_spent = is_spent or (await _spent_usd(trial) or 0.0) >= max_usd
        if is_spent and name not in FREE:
            verdict = skipped(money_is_spent(max_usd))
        else:
            verdict = await _judged(trial, check)
        verdicts.append(verdict)
        say(line_of(name, verdict))
    spent_usd = await _spent_usd(trial)
    cost = "an unknown part" if spent_usd is None else f"{spent_usd:.2f}"
    say(f"{summary_of(verdicts)}; the job has cost {cost} of {max_usd:g} USD")
    if any(verdict.result is Result.FAIL for verdict in verdicts):
        return EXIT_FAILED
    return EXIT_LIMIT if is_spent else 0


async def clean_up(trial: Trial, say: Say) -> int:
    """Stop the job and delete the probes. The clusters stay and cost money."""
    problems: list[str] = []
    for step in (money_checks.stop, refusal_checks.take_down_probes):
        try:
            await step(trial)
        except (TradewindError, WouldChange) as error:
            problems.append(str(error))
    if problems:
        say(f"{CLEANUP_FAILED}: {'; '.join(problems)}")
        return EXIT_FAILED
    say(CLEANED_UP)
    return 0


def money_is_spent(max_usd: float) -> str:
    return f"the limit of {max_usd:g} USD is spent"


async def _judged(trial: Trial, check: Check) -> Verdict:
    try:
        return await check(trial)
    except WouldChange as change:
        return skipped(f"dry run; the next command would be: {change}")
    except UserError as error:
        return failed(" ".join(filter(None, (str(error), error.hint))))
    except TradewindError as error:
        return failed(str(error))


async def _spent_usd(trial: Trial) -> float | None:
    """What the job has cost; None if the master does not answer. The master stops the job at the limit by itself."""
    try:
        return await money_checks.spent_usd(trial)
    except TradewindError:
        return None
