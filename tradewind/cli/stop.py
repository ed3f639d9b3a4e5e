"""`tradewind stop`: stop a job, wait until its trainers have saved and ended, and say what they saved."""

import asyncio
import time

import click

from messages.api import JobView
from messages.workers import WrittenCheckpoint
from runtime.plain_text import plain
from tradewind.client.api import Api
from tradewind.client.errors import MasterAway
from tradewind.client.watch import has_ended
from tradewind.terminal import output

LOOK_S = 0.3
MARGIN_S = 60.0
"""Seconds after the grace in which the end of killed trainers is waited for."""


async def stop_job(api: Api, job: str, grace_s: float | None) -> int:
    before = await api.job(job)
    view = before if has_ended(before) else await api.stop(job, grace_s)
    if not has_ended(view):
        output.say(waiting_text(view))
        try:
            view = await _until_ended(api, view)
        except asyncio.CancelledError:
            output.say(f"job {job} is still stopping. {output.next_command(f'tradewind stop {job} --grace 0')}")
            raise
    if not has_ended(view):
        click.echo(f"Job {job} has not stopped yet: {output.continued(view.why.strip())}")
        click.echo(output.next_command(f"tradewind status {job} --watch"))
        return 1
    click.echo(f"Job {job} has {view.phase}.")
    if not has_ended(before):
        written, sentence = checkpoint_text(before, view)
        click.echo(sentence) if written else output.say(sentence)
    click.echo(output.next_command(f"tradewind status {job}"))
    return 0


def waiting_text(view: JobView) -> str:
    grace = f"up to {view.stop_grace_s:g} s" if view.stop_grace_s is not None else "a while"
    return f"job {view.name} is stopping: its trainers may take {grace} to end the body of their loop and to save"


def checkpoint_text(before: JobView, after: JobView) -> tuple[bool, str]:
    """Whether one was written for the stop, and a sentence about it."""
    newest = after.checkpoint
    if newest is not None and newest.step is None:
        return _plain_text(newest, is_new=newest != before.checkpoint)
    if newest is not None and newest != before.checkpoint:
        lost = after.step + 1 - newest.step if after.step is not None and newest.step is not None else 0
        if lost > 0:
            kept = f"the newest checkpoint is of step {newest.step} in {plain(newest.folder)}"
            return False, f"warning: {kept}, and {lost} later steps are lost. A longer --grace may help"
        return True, f"Checkpoint of step {newest.step} written to {plain(newest.folder)}."
    if newest is not None:
        kept = f"the newest is of step {newest.step} in {plain(newest.folder)}, and what came after it is lost"
        return False, f"warning: no checkpoint was written when the job stopped; {kept}. A longer --grace may help"
    if after.measured is not None or before.measured is not None:
        return False, "warning: no checkpoint was written: the run has no checkpoints=, or --grace was too short"
    return False, "nothing is known about a checkpoint: the script had not begun to train, or it reports none"


def _plain_text(newest: WrittenCheckpoint, *, is_new: bool) -> tuple[bool, str]:
    """A sentence about a script without the SDK: what is in its checkpoints is unknown."""
    age = output.duration(time.time() - newest.at)
    if is_new:
        return True, f"Its script wrote a checkpoint {age} ago."
    return False, f"its script's newest known checkpoint is {age} old; it got SIGTERM to save once more by itself"


async def _until_ended(api: Api, view: JobView) -> JobView:
    """Over a restart of the master, too. Says what is waited for whenever that changes."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + (view.stop_grace_s or 0.0) + MARGIN_S
    told = ""
    while not has_ended(view) and loop.time() < until_s:
        if view.why != told:
            told = view.why
            output.say(told)
        await asyncio.sleep(LOOK_S)
        try:
            view = await api.job(view.name)
        except MasterAway as away:
            if loop.time() >= until_s:
                raise
            told = _told_away(told, away)
    return view


def _told_away(told: str, away: MasterAway) -> str:
    if told != str(away):
        output.say(str(away))
    return str(away)
