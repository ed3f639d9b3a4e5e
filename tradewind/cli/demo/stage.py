"""Where the demonstration happens: the stack around it, the view of it, the report at its end."""

import asyncio
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import msgspec

from messages.api import EventLine
from messages.jobs import JobSpec, Launch, Workers
from runtime.process import EXIT_FAILED, Stop
from tradewind.cli import present
from tradewind.cli.demo import view
from tradewind.cli.demo.facts import Promise
from tradewind.cli.demo.report import Report, report_on
from tradewind.cli.demo.story import Story
from tradewind.cli.demo.summary import report_text
from tradewind.cli.interrupt import unless_stopped
from tradewind.cli.local.stack import NATS_VARIABLE, local_stack

TRAINING_S = 45.0
"""Steps are paced to take so long together: as with a big model, a lost worker's replacement is in time to help."""
LIMIT_S = 300.0
BATCH_PER_WORKER = 8
CHECKPOINTS = 15


@dataclass(frozen=True, slots=True)
class Demonstration:
    script: Path
    steps: int
    workers: int
    as_json: bool
    keep: bool

    async def result(self, environ: Mapping[str, str], stop: Stop) -> int:
        return await unless_stopped(self._play(environ), stop, _say_that_it_ends)

    async def _play(self, environ: Mapping[str, str]) -> int:
        drawn = present.is_terminal() and not self.as_json
        nats_url = environ.get(NATS_VARIABLE, "")
        async with local_stack(environ, present.say, nats_url=nats_url, keep_folder=self.keep) as stack:
            present.say(f"elsewhere: TRADEWIND_API_URL={stack.api.url} tradewind status --watch")
            present.say(f"elsewhere: nats sub -s {f'${NATS_VARIABLE}' if nats_url else stack.nats_url} 'tradewind.>'")
            promise = self._promise()
            story = Story(stack.api, self._spec(promise, stack.folder), promise, self._teller(drawn))
            await self._watched(story, drawn)
        report = report_on(story.facts(tuple(stack.left_behind)))
        self._print(report, story)
        return 0 if report.ok else EXIT_FAILED

    async def _watched(self, story: Story, drawn: bool) -> None:
        showing = view.draw(story) if drawn else view.tell(story, err=self.as_json)
        shown = asyncio.create_task(showing, name="demo-view")
        try:
            async with asyncio.timeout(LIMIT_S):
                await story.play()
        except TimeoutError:
            present.say(f"the job has not ended within {LIMIT_S:g} s")
        finally:
            shown.cancel()
            await asyncio.wait({shown})

    def _teller(self, drawn: bool) -> Callable[[EventLine], None]:
        """What happens is part of the picture, where one is drawn; beside a JSON report it is for standard error."""
        return (lambda event: None) if drawn else partial(view.tell_news, err=self.as_json)

    def _promise(self) -> Promise:
        return Promise(
            steps=self.steps,
            workers=self.workers,
            global_batch=BATCH_PER_WORKER * self.workers,
            checkpoint_every=max(1, self.steps // CHECKPOINTS),
        )

    def _spec(self, promise: Promise, folder: Path) -> JobSpec:
        return JobSpec(
            name=f"demo-{secrets.token_hex(2)}",
            launch=Launch(
                script=str(self.script),
                args=(
                    *("--steps", str(promise.steps)),
                    *("--global-batch", str(promise.global_batch)),
                    *("--checkpoint", str(folder / "checkpoint")),
                    *("--checkpoint-every", str(promise.checkpoint_every)),
                    *("--step-ms", f"{TRAINING_S * 1000 / promise.steps:.0f}"),
                ),
                workdir=str(folder),
                python=sys.executable,
                env={"OMP_NUM_THREADS": "1"},
            ),
            workers=Workers(max=self.workers, min=max(1, self.workers - 2)),
            hyperparameters={"global_batch": promise.global_batch},
        )

    def _print(self, report: Report, story: Story) -> None:
        if self.as_json:
            click.echo(msgspec.json.encode(report).decode())
        else:
            present.console().print(report_text(report))
        if story.view is not None and story.view.phase == "failed":
            for line in story.last_lines:
                click.echo(line, err=True)
        if not report.ok:
            present.say(present.next_command("tradewind demo --keep, and look at the logs in its folder"))


async def _say_that_it_ends() -> None:
    present.say("interrupted; ending all that was started")
