"""`tradewind events`: what happened to a job, or to all jobs, and why."""

from messages.api import EventLine
from runtime.plain_text import plain
from tradewind.client import following
from tradewind.client.api import Api
from tradewind.client.watch import is_over
from tradewind.terminal import output


async def show_events(
    api: Api, job: str | None, *, follow: bool, tail: int | None = None, causes: bool = False, as_json: bool
) -> int:
    await (api.version() if job is None else api.job(job))
    if follow:
        tails = iter((tail,))  # only of the first stream: later ones fill gaps
        seen: following.Seen[EventLine] = following.Seen(following.source_of_event)
        stream = following.follow(
            lambda: api.events(job, tail=next(tails, None), follow=True),
            seen,
            lambda: is_over(api, job),
            on_away=output.say,
        )
    else:
        stream = api.events(job, tail=tail)
    async for event in stream:
        if as_json:
            output.echo_json(event)
        else:
            output.show(output.event_line(event))
            if causes and event.caused_by:
                output.show(f"{output.CONTINUED}caused by {plain(event.caused_by)}")
        if follow and job is not None and event.ends_job:
            break
    return 0
