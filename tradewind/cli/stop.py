"""`tradewind stop`: stops a job, waits until its trainers have saved and ended, and shows what they saved."""

import asyncio
import time

import click

from messages.api import JobView
from messages.workers import WrittenCheckpoint
from runtime.exit_codes import EXIT_FAILED
from runtime.plain_text import plain
from tradewind.client.api import Api
from tradewind.client.errors import MasterAway
from tradewind.client.watch import has_ended
from tradewind.terminal import output

LOOK_S = 0.3
MARGIN_S = 60.0
"""Seconds after the grace in which the command waits for the end of killed trainers."""


async def stop_job(api: Api, job: str, grace_s: float | None, *, as_json: bool = False) -> int:
    before = await api.job(job)
    view = before if has_ended(before) else await api.stop(job, grace_s)
    if not has_ended(view):
        output.say(waiting_text(view))
        try:
            view = await _until_ended(api, view)
        except asyncio.CancelledError:
            output.say(f"job {job} is still stopping")
            output.hint(f"tradewind stop {job} --grace 0")
            raise
    if as_json:
        output.echo_json(view)
        return 0 if has_ended(view) else EXIT_FAILED
    if not has_ended(view):
        click.echo(f"Job {job} has not stopped yet: {output.continued(view.why.strip())}")
        output.hint(f"tradewind status {job} --watch")
        return EXIT_FAILED
    click.echo(stopped_text(view))
    if not has_ended(before):
        written, message = checkpoint_text(before, view)
        click.echo(message) if written else output.say(message)
    output.hint(f"tradewind status {job}")
    return 0


def stopped_text(view: JobView) -> str:
    return f"Job {view.name} has {view.phase}."


def waiting_text(view: JobView) -> str:
    grace = f"up to {view.stop_grace_s:g} s" if view.stop_grace_s is not None else "a while"
    return f"job {view.name} is stopping: its trainers have {grace} to end the body of their loop and to save"


def checkpoint_text(before: JobView, after: JobView) -> tuple[bool, str]:
    """Whether the stop wrote a checkpoint, and a message about the newest one."""
    newest = after.checkpoint
    if newest is not None and newest.step is None:
        return _plain_text(newest, is_new=newest != before.checkpoint)
    if newest is not None and newest != before.checkpoint:
        lost = after.step + 1 - newest.step if after.step is not None and newest.step is not None else 0
        if lost > 0:
            stored = f"the newest checkpoint is of step {newest.step} in {plain(newest.folder)}"
            return False, f"warning: {stored}; it lacks {output.count(lost, 'later step')}. A longer --grace may help"
        return True, f"Checkpoint of step {newest.step} written to {plain(newest.folder)}."
    if newest is not None:
        stored = f"the newest is of step {newest.step} in {plain(newest.folder)}, and later steps are lost"
        return False, f"warning: the stop wrote no checkpoint; {stored}. A longer --grace may help"
    if after.measured is not None or before.measured is not None:
        return False, "warning: the stop wrote no checkpoint: the run has no checkpoints=, or --grace was too short"
    return False, "no checkpoint is known: the script has not begun to train, or does not report checkpoints"


def _plain_text(newest: WrittenCheckpoint, *, is_new: bool) -> tuple[bool, str]:
    """The same for a script without the SDK, whose checkpoints have no known step."""
    age = output.duration(time.time() - newest.at)
    if is_new:
        return True, f"The script wrote a checkpoint {age} ago."
    return False, f"the script's newest known checkpoint is {age} old; the script got SIGTERM and could save again"


async def _until_ended(api: Api, view: JobView) -> JobView:
    """Over a restart of the master, too. Says what is waited for whenever that changes."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + (view.stop_grace_s or 0.0) + MARGIN_S
    reported = ""
    while not has_ended(view) and loop.time() < until_s:
        if view.why != reported:
            reported = view.why
            output.say(reported)
        await asyncio.sleep(LOOK_S)
        try:
            view = await api.job(view.name)
        except MasterAway as away:
            if loop.time() >= until_s:
                raise
            reported = _reported_away(reported, away)
    return view


def _reported_away(reported: str, away: MasterAway) -> str:
    if reported != str(away):
        output.say(str(away))
    return str(away)
