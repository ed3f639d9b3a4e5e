"""Small phrases that reasons are made of."""

from messages.ids import Rank, WorkerId
from messages.workers import TrainerExit

NAMED_AT_MOST = 4


def describe_exit(exit_: TrainerExit) -> str:
    error = (exit_.error or "").strip() if not exit_.stalled else ""
    return f"rank {exit_.rank} {how_it_ended(exit_)}" + (f": {error.splitlines()[-1]}" if error else "")


def how_it_ended(exit_: TrainerExit) -> str:
    if exit_.stalled:
        return f"is stalled: {exit_.stalled}"
    early = " before the last step (to end a run early, its script calls run.stop())" if exit_.early else ""
    return f"was ended by {exit_.signal}" if exit_.signal is not None else f"exited with {exit_.code}{early}"


def excerpt_of(exit_: TrainerExit) -> tuple[str, ...]:
    """The lines to show when it failed: its stack if it was stalled, else its standard error and what to do."""
    if exit_.stalled:
        return tuple((exit_.error or "").splitlines())
    return (*exit_.tail, *([exit_.hint] if exit_.hint else []))


def reason_of(exit_: TrainerExit) -> str:
    """The error that the script recorded, else the excerpt of its standard error; then what to do."""
    if exit_.error:
        return f"{exit_.error}\n{exit_.hint}" if exit_.hint else exit_.error
    return "\n".join(excerpt_of(exit_))


def count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def workers_are(number: int) -> str:
    return f"{count(number, 'worker')} {'is' if number == 1 else 'are'}"


def still_run_old_code(number: int) -> str:
    return f"{count(number, 'worker')} still {'runs' if number == 1 else 'run'} the old code"


def all_exited(ranks: int) -> str:
    return f"{'the only rank' if ranks == 1 else f'all {ranks} ranks'} exited with 0"


def failures_allowed(most: int) -> str:
    return f"{count(most, 'failure') if most else 'no failure'} {'is' if most <= 1 else 'are'} allowed"


def name_workers(workers: list[WorkerId]) -> str:
    return _name("worker", workers)


def name_ranks(ranks: list[Rank]) -> str:
    return _name("rank", tuple(ranks))


def describe_waiting(waiting: tuple[Rank, ...], missing: tuple[Rank, ...]) -> str:
    wait = "wait" if len(waiting) > 1 else "waits"
    return f"{_name('rank', waiting)} {wait} for {_name('rank', missing)}, not seen at the store"


def _name(what: str, names: list[WorkerId] | tuple[Rank, ...]) -> str:
    shown = ", ".join(str(name) for name in names[:NAMED_AT_MOST])
    more = f" and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else ""
    return f"{what}{'s' if len(names) > 1 else ''} {shown}{more}"
