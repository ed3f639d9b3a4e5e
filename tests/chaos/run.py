"""One run from the first process to the last check."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from messages.api import EventLine
from runtime.errors import UserError
from tests.chaos.evidence import Evidence, find_tracebacks, gather_job
from tests.chaos.faults import Fault, Kind, Target, schedule
from tests.chaos.injector import Injector
from tests.chaos.jobs import Job, four_jobs
from tests.chaos.stage import Stage, a_stage
from tests.chaos.watcher import Watcher
from tradewind.client.api import Api, session
from tradewind.client.errors import MasterAway
from tradewind.local.stack import Say

START_S = 180.0
SETTLE_S = 150.0
SETTLE_S_PER_MINUTE = 15.0
"""Seconds per minute of the run that the jobs may take to end after the last fault."""
LEFT_S = 40.0
ANSWER_S = 60.0
POLL_S = 0.2


async def run(seed: int, minutes: float, say: Say, without: Collection[Kind]) -> tuple[Evidence, Stage]:
    faults = schedule(seed, minutes, without)
    async with a_stage(say) as stage:
        jobs = four_jobs(stage.folder, minutes, faults)
        watcher = Watcher(stage, say)
        watching = asyncio.create_task(watcher.run(), name="watcher")
        try:
            evidence = await _run(stage, jobs, watcher, faults, minutes, say)
        finally:
            watching.cancel()
            await asyncio.wait({watching})
    left = await _until_none_is_left(stage)
    tracebacks = tuple(find_tracebacks(stage.logs()))
    return replace(evidence, exits=tuple(stage.exits), left=left, tracebacks=tracebacks), stage


async def _run(
    stage: Stage, jobs: Mapping[Target, Job], watcher: Watcher, faults: tuple[Fault, ...], minutes: float, say: Say
) -> Evidence:
    injector = Injector(stage, jobs, watcher)
    try:
        await _submit(stage, jobs)
        await _until(lambda: _all_train(jobs, watcher), START_S)
        say(f"all jobs train; {len(faults)} faults in {minutes:g} minutes")
        await _inject(injector, faults, minutes, say)
    finally:
        injector.end()
    say("the faults are over: the jobs finish")
    for job in jobs.values():
        job.let_go()
    await _until(lambda: watcher.ended, SETTLE_S + SETTLE_S_PER_MINUTE * minutes)
    await _until(lambda: not stage.strangers(), LEFT_S)
    strangers = tuple(stage.strangers())
    events = {name: await _events(stage, name) for name in jobs}
    return Evidence(
        jobs={name: gather_job(job, watcher.views.get(name), events[name]) for name, job in jobs.items()},
        injected=tuple(injector.injected),
        strangers=strangers,
        shown=tuple([line for name in jobs for line in await _shown(stage, name)]),
    )


async def _inject(injector: Injector, faults: tuple[Fault, ...], minutes: float, say: Say) -> None:
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    for number, fault in enumerate(faults, 1):
        await asyncio.sleep(max(0.0, begun_s + fault.at_s - loop.time()))
        done = await injector.inject(fault)
        say(f"fault {number}/{len(faults)}: {fault.kind} ({fault.target}): {done.what}")
    await asyncio.sleep(max(0.0, begun_s + minutes * 60 - loop.time()))


async def _submit(stage: Stage, jobs: Mapping[Target, Job]) -> None:
    async with session() as opened:
        api = Api(opened, ",".join(stage.urls.values()))
        for job in jobs.values():
            await api.submit(job.spec())


def _all_train(jobs: Mapping[Target, Job], watcher: Watcher) -> bool:
    views = watcher.views
    return all(
        name in views and views[name].world_size == job.workers and views[name].step for name, job in jobs.items()
    )


async def _events(stage: Stage, name: str) -> tuple[EventLine, ...]:
    async with session() as opened:
        api = Api(opened, ",".join(stage.urls.values()))
        with contextlib.suppress(MasterAway, UserError, TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                return tuple([event async for event in api.events(name)])
    return ()


async def _shown(stage: Stage, name: str) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tradewind", "events", name),
        env={**os.environ, "TRADEWIND_API_URL": ",".join(stage.urls.values())},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(ANSWER_S):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return []
    return out.decode(errors="replace").splitlines()


async def _until_none_is_left(stage: Stage) -> tuple[str, ...]:
    await _until(lambda: not stage.everything(), LEFT_S)
    return (*stage.left_behind, *stage.everything())


async def _until(condition: Callable[[], object], timeout_s: float) -> bool:
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    while not condition():
        if loop.time() > deadline_s:
            return False
        await asyncio.sleep(POLL_S)
    return True
