"""Runs the demonstration: its stack, its view, and the report at its end."""

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click
import msgspec

from messages.api import EventLine
from messages.criteria import Capacity, Objective, StepProfile, StepTime
from messages.jobs import JobSpec, Launch, Workers
from runtime.exit_codes import EXIT_FAILED
from runtime.process import Stop
from tradewind.demo import timeline, view
from tradewind.demo.cloud.story import CloudStory
from tradewind.demo.facts import Promise
from tradewind.demo.report import Report, report_on, report_text
from tradewind.demo.story import Story
from tradewind.local.cloud import CloudStack, cloud_stack
from tradewind.local.stack import NATS_VARIABLE, LocalStack, local_stack
from tradewind.sdk import diagnostics
from tradewind.terminal import output, tables
from tradewind.terminal.foreground import unless_stopped
from tradewind.terminal.offers import offer_table

BESIDE_TRAINING_S = 255.0
"""Seconds that machines, starts and pauses may take in total."""
Tell = Callable[[EventLine], None]
BATCH_PER_WORKER = 8
CHECKPOINTS = 15
USD_PER_HOUR_AND_WORKER = 3.0
GRADIENT_BYTES = 1_686_528
"""Bytes of the gradients of the script's model."""
TRACE = "trace"
"""Folder in which each trainer writes the times of its steps."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    script: Path
    steps: int
    workers: int
    seconds: float
    """Duration of all steps together. Steps are slowed down, so that replacements of lost workers join in time."""
    as_json: bool
    keep: bool
    fleet: str | None = None
    """The text of a fleet file; without it, workers are plain processes."""

    async def result(self, environ: Mapping[str, str], stop: Stop) -> int:
        return await unless_stopped(self._play(environ), stop, _say_stopping)

    async def _play(self, environ: Mapping[str, str]) -> int:
        drawn = output.is_terminal() and not self.as_json
        async with self._stage(environ, self._teller(drawn)) as (stack, story):
            bus = f"${NATS_VARIABLE}" if environ.get(NATS_VARIABLE) else stack.nats_url
            output.say(f"in another terminal: TRADEWIND_API_URL={stack.api.url} tradewind status --watch")
            output.say(f"in another terminal: nats sub -s {bus} 'tradewind.>'")
            await self._watched(story, drawn)
            traced = timeline.read(stack.folder / TRACE)
        report = report_on(replace(story.facts(tuple(stack.left_behind)), traced=traced))
        self._print(report, story)
        return 0 if report.ok else EXIT_FAILED

    @asynccontextmanager
    async def _stage(self, environ: Mapping[str, str], tell: Tell) -> AsyncIterator[tuple[LocalStack, Story]]:
        promise = self._promise()
        bus = environ.get(NATS_VARIABLE, "")
        if self.fleet is None:
            async with local_stack(environ, output.say, nats_url=bus, keep_folder=self.keep) as stack:
                yield stack, Story(stack.api, self._spec(promise, stack.folder), promise, tell)
        else:
            async with cloud_stack(
                environ, output.say, self.fleet, self.workers, nats_url=bus, keep_folder=self.keep
            ) as clouded:
                spec = msgspec.structs.replace(
                    self._spec(promise, clouded.folder), capacity=self._capacity(), profile=self._profile(clouded)
                )
                await self._show_offers(clouded)
                yield clouded, CloudStory(clouded.api, spec, promise, tell, clouded.cloud, clouded.fleet)

    async def _show_offers(self, stack: CloudStack) -> None:
        """Prints the fleet's machines with their current prices."""
        fleet = {(offer.zone, offer.machine_type) for offer in stack.fleet.offers}
        offered = (await stack.api.offers()).offers
        prices = offer_table([each for each in offered if (each.zone, each.machine_type) in fleet])
        tables.console(stderr=self.as_json).print(prices)

    async def _watched(self, story: Story, drawn: bool) -> None:
        showing = view.draw(story) if drawn else view.tell(story, err=self.as_json)
        shown = asyncio.create_task(showing, name="demo-view")
        limit_s = self.seconds + BESIDE_TRAINING_S
        try:
            async with asyncio.timeout(limit_s):
                await story.play()
        except TimeoutError:
            output.say(f"the job has not ended within {limit_s:g} s")
        finally:
            shown.cancel()
            await asyncio.wait({shown})

    def _teller(self, drawn: bool) -> Tell:
        """Prints events, unless the live view shows them. Beside a JSON report they go to standard error."""
        return (lambda event: None) if drawn else partial(view.print_event, err=self.as_json)

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
                    *("--step-ms", f"{self.seconds * 1000 / promise.steps:.0f}"),
                ),
                workdir=str(folder),
                python=sys.executable,
                env={"OMP_NUM_THREADS": "1", diagnostics.TRACE: str(folder / TRACE)},
            ),
            workers=Workers(max=self.workers, min=max(1, self.workers - 2)),
            hyperparameters={"global_batch": promise.global_batch},
        )

    def _capacity(self) -> Capacity:
        return Capacity(objective=Objective.THROUGHPUT, max_usd_per_hour=USD_PER_HOUR_AND_WORKER * self.workers)

    def _profile(self, stack: CloudStack) -> StepProfile:
        """The profile of the slowed-down steps."""
        names = {offer.accelerator for offer in stack.fleet.offers if offer.accelerator is not None}
        time = StepTime(seconds_per_sample=self.seconds / self.steps / BATCH_PER_WORKER)
        return StepProfile(gradient_bytes=GRADIENT_BYTES, compute=dict.fromkeys(sorted(names), time))

    def _print(self, report: Report, story: Story) -> None:
        if self.as_json:
            output.echo_json(report)
        else:
            tables.console().print(report_text(report))
        if story.view is not None and story.view.phase == "failed":
            for line in story.last_lines:
                click.echo(line, err=True)
        if not report.ok:
            output.hint("make demo ARGS=--keep, then read the logs in the folder that it names")


async def _say_stopping() -> None:
    output.say("interrupted; stopping all processes")
