"""Builds the texts of reasons."""

from messages.ids import ClusterName, Rank, WorkerId
from messages.workers import TrainerExit

NAMED_AT_MOST = 4
NOT_STARTED = "did not start its trainers"
NOT_ENDED = "did not end its trainers"
STEPS_DONE = "all steps are done"
BY_PERSON = "requested by a person"
BUDGET_ALLOWS = "the budget allows it again"


def describe_exit(exit_: TrainerExit) -> str:
    error = (exit_.error or "").strip() if not exit_.stalled else ""
    return f"rank {exit_.rank} {how_it_ended(exit_)}" + (f": {error.splitlines()[-1]}" if error else "")


def how_it_ended(exit_: TrainerExit) -> str:
    if exit_.stalled:
        return f"is stalled: {exit_.stalled}"
    early = " before the last step (to end a run early, its script calls run.stop())" if exit_.early else ""
    return f"was ended by {exit_.signal}" if exit_.signal is not None else f"exited with {exit_.code}{early}"


def excerpt_of(exit_: TrainerExit) -> tuple[str, ...]:
    """Lines that explain a failure: the stack of a stalled trainer, else its standard error and what to do."""
    if exit_.stalled:
        return tuple((exit_.error or "").splitlines())
    return (*exit_.tail, *([exit_.hint] if exit_.hint else []))


def reason_of(exit_: TrainerExit) -> str:
    """Error that the script recorded, else the excerpt of its standard error; then what to do."""
    if exit_.error:
        return f"{exit_.error}\n{exit_.hint}" if exit_.hint else exit_.error
    return "\n".join(excerpt_of(exit_))


def workers_here(ready: int = 0, importing: int = 0, starting: int = 0, *, is_any_known: bool = False) -> str:
    counts = {"ready": ready, "importing torch": importing, "starting": starting}
    parts = [(number, state) for state, number in counts.items() if number]
    if not parts:
        return "no worker is ready" if is_any_known else "no worker is here yet"
    (number, state), *others = parts
    first = f"{workers_are(number)} {state}"
    return ", ".join([first, *(f"{number} {'is' if number == 1 else 'are'} {state}" for number, state in others)])


def too_few_ready(here: str, least: int) -> str:
    return f"{here}; at least {least} must be ready"


def too_few_warm(warm: int, least: int) -> str:
    return f"{warm} of at least {workers_are(least)} warm; the state is kept"


def too_few_left(left: int, least: int) -> str:
    return f"{left} of at least {count(least, 'worker')} would be left"


def more_wanted(here: str, wanted: int) -> str:
    return f"{here}; {wanted} are wanted"


def could_not_train(workers: int, why: str) -> str:
    return f"{count(workers, 'worker')} in a row could not train: {why}"


def waits_to(what: str, workers: list[WorkerId]) -> str:
    return f"waiting for {name_workers(workers)} to {what}"


def waits_to_hear(workers: list[WorkerId]) -> str:
    return f"waiting to hear from {name_workers(workers)}"


def waits_to_save(workers: list[WorkerId], grace_s: float) -> str:
    return f"waiting up to {grace_s:g} s for {name_workers(workers)} to end the loop body and save"


def waits_for_admission(workers: int, at_most_s: float) -> str:
    minutes = round(at_most_s / 60)
    when = f"in about {minutes} min" if minutes > 1 else "within a minute"
    wait = "waits" if workers == 1 else "wait"
    return f"{count(workers, 'worker')} {wait} to be admitted: at the next checkpoint, or {when}"


def waits_for_budget(why: str, *, has_trained: bool) -> str:
    later = "continues from the newest checkpoint (from the start if there is none)" if has_trained else "begins"
    return f"budget reached: {why}; training {later} when the budget is raised"


def refused_by(cluster: ClusterName, why: str) -> str:
    return f"cluster {cluster} refused: {why}"


def last_lost(why: str) -> str:
    return f"the last lost worker: {why}"


def store_failed(why: str) -> str:
    return f"the last start failed: {why}"


def not_parked(seconds: float) -> str:
    return f"did not park within {seconds:.1f} s"


def next_world_late(seconds: float) -> str:
    return f"the next world was not ready within {seconds:g} s"


def lost_peers(rank: Rank, worker: WorkerId) -> str:
    return f"rank {rank} on worker {worker} lost the connection to its peers"


def rejected(worker: WorkerId, why: str) -> str:
    return f"worker {worker} was rejected: {why}"


def capped(cluster: ClusterName, workers: int) -> str:
    started = f"no more than {count(workers, 'worker')}" if workers else "no worker"
    return f"cluster {cluster} started {started}; the other clusters are asked for the rest"


def noticed(remaining_s: float, source: str = "") -> str:
    """Why a worker has a notice."""
    what = "it must end within" if source == "signal" else "its node will be preempted in"
    return f"{what} {remaining_s:.0f} s" + (f" ({source})" if source else "")


def budget_spent(why: str) -> str:
    return f"budget spent: {why}"


def count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def world_of(ranks: int) -> str:
    return f"a world of {ranks}"


def lost(worker: WorkerId, why: str) -> str:
    return f"worker {worker} was lost: {why}"


def must_leave(worker: WorkerId, why: str) -> str:
    return f"worker {worker} must leave: {why}"


def must_leave_at_once(worker: WorkerId, why: str) -> str:
    return f"worker {worker} must leave, without time for a hand-over: {why}"


def must_leave_first(workers: list[WorkerId]) -> str:
    return f"{name_workers(workers)} must leave before replacements can come: their nodes will be removed"


def drained(workers: list[WorkerId]) -> str:
    return f"{name_workers(workers)} must leave: their nodes will be removed"


def joined(workers: list[WorkerId]) -> str:
    return f"{name_workers(workers)} joined"


def scaled(workers: int) -> str:
    return f"scaled to {count(workers, 'worker')}"


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
