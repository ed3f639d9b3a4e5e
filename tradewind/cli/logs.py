"""`tradewind logs`: what the ranks of a job print."""

from collections.abc import AsyncIterator

import click

from messages.api import LogLine
from tradewind.client.api import Api
from tradewind.client.following import Seen, follow, source_of_line
from tradewind.client.watch import is_over
from tradewind.terminal import output


async def show_logs(
    api: Api, job: str, *, rank: int | None, tail: int | None, follow: bool, as_json: bool = False
) -> int:
    await api.job(job)
    lines = _followed_lines(api, job, rank, tail) if follow else api.logs(job, rank=rank, tail=tail)
    count = 0
    async for line in lines:
        output.echo_json(line) if as_json else output.show_line(line)
        count += 1
    if count == 0 and tail != 0 and not as_json:
        whose = f"Rank {rank} of job" if rank is not None else "Job"
        click.echo(f"{whose} {job} has printed nothing yet.", err=True)
        output.hint(f"tradewind status {job}")
    return 0


def _followed_lines(api: Api, job: str, rank: int | None, tail: int | None) -> AsyncIterator[LogLine]:
    """The lines until the job ends. Only the first stream is limited to the tail; later ones fill gaps."""
    tails = iter((tail,))
    return follow(
        lambda: api.logs(job, rank=rank, tail=next(tails, None), follow=True),
        Seen(source_of_line),
        lambda: is_over(api, job),
        on_away=output.say,
    )
