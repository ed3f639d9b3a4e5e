"""Commands about jobs: each asks the master's API and ends with the next command to try."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from tradewind.cli.numbers import Whole

F = TypeVar("F", bound=Callable[..., Any])

WHERE = """
\b
The master is the one at TRADEWIND_API_URL (http://127.0.0.1:8800 if not set; of several with commas between, the
one that leads); TRADEWIND_API_TOKEN is its token.
"""


def _complete_job(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from tradewind.cli.jobs.names import names_in_time

    return [CompletionItem(name) for name in names_in_time(os.environ) if name.startswith(incomplete)]


job_argument = click.argument("job", shell_complete=_complete_job)
some_job_argument = click.argument("job", required=False, shell_complete=_complete_job)
json_option = click.option("--json", "as_json", is_flag=True, help="JSON instead of text for people.")


def examples(*lines: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines) + "\n" + WHERE


@click.command(
    epilog=examples(
        "tradewind submit job.yaml",
        "tradewind submit job.yaml --wait     follow it, and exit with its result",
        "tradewind submit job.yaml --replace  once more, in place of the last one of this name",
    )
)
@click.argument("jobfile", type=click.Path(path_type=Path), metavar="JOB.yaml")
@click.option(
    "--replace", is_flag=True, help="Remove an ended job of the same name first. A job that has not ended is refused."
)
@click.option("--wait", is_flag=True, help="Show what its ranks print, until its end; exit with the job's result.")
@json_option
def submit(jobfile: Path, replace: bool, wait: bool, as_json: bool) -> None:
    """Submit the job that a YAML file describes.

    A relative workdir is taken from the file's folder (which is the default), a relative script from the workdir.
    """
    from tradewind.cli.jobs import asking
    from tradewind.cli.jobs.jobfile import read_job
    from tradewind.cli.jobs.oneshot import ask_master

    spec = read_job(jobfile)
    ask_master(lambda api: asking.submit(api, spec, replace=replace, wait=wait, as_json=as_json))


@click.command(
    epilog=examples(
        "tradewind status                     all jobs",
        "tradewind status mnist               one job and its workers",
        "tradewind status mnist --watch       again and again, until it ends",
    )
)
@some_job_argument
@click.option("--watch", is_flag=True, help="Keep showing it, until ctrl-C or the job's end.")
@json_option
def status(job: str | None, watch: bool, as_json: bool) -> None:
    """Show all jobs, or one JOB with its workers."""
    from tradewind.cli.jobs import asking
    from tradewind.cli.jobs.oneshot import ask_master

    ask_master(lambda api: asking.status(api, job, watch=watch, as_json=as_json))


@click.command(
    epilog=examples(
        "tradewind logs mnist --tail 20",
        "tradewind logs mnist --rank 0 --follow",
    )
)
@job_argument
@click.option("--rank", type=Whole(min=0), help="Only this rank.")
@click.option("--tail", type=Whole(min=0), metavar="N", help="Only the last N lines.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the job's end.")
def logs(job: str, rank: int | None, tail: int | None, follow: bool) -> None:
    """Show what the ranks of JOB print: standard output and standard error, each line prefixed with its rank."""
    from tradewind.cli.jobs import asking
    from tradewind.cli.jobs.oneshot import ask_master

    ask_master(lambda api: asking.logs(api, job, rank=rank, tail=tail, follow=follow))


@click.command(
    epilog=examples(
        "tradewind events                     of everything",
        "tradewind events mnist --follow",
    )
)
@some_job_argument
@click.option("--follow", "-f", is_flag=True, help="Go on until the job's end, or until ctrl-C.")
@json_option
def events(job: str | None, follow: bool, as_json: bool) -> None:
    """Show what happened to JOB, or to everything, and why."""
    from tradewind.cli.jobs import asking
    from tradewind.cli.jobs.oneshot import ask_master

    ask_master(lambda api: asking.events(api, job, follow=follow, as_json=as_json))


@click.command(epilog=examples("tradewind scale mnist 8"))
@job_argument
@click.argument("workers", type=Whole(min=1))
def scale(job: str, workers: int) -> None:
    """Let JOB have WORKERS workers from now on. It goes on training while they come or go."""
    from tradewind.cli.jobs import asking
    from tradewind.cli.jobs.oneshot import ask_master

    ask_master(lambda api: asking.scale(api, job, workers))


@click.command(epilog=examples("tradewind reload mnist", "tradewind events mnist --follow       see it happen"))
@job_argument
def reload(job: str) -> None:
    """Let JOB take its code anew, as it is now in its workdir or image.

    With the SDK it goes on training: its workers are replaced one after the other, each by a hand-over. If the new
    code does not work, the others stay as they are until it is mended. Without the SDK all its trainers are started
    again.
    """
    from tradewind.cli.jobs import asking
    from tradewind.cli.jobs.oneshot import ask_master

    ask_master(lambda api: asking.reload(api, job))


@click.command(
    epilog=examples(
        "tradewind stop mnist",
        "tradewind stop mnist --grace 600     for steps or evaluations of minutes",
        "tradewind stop mnist --grace 0       at once, also while it is stopping",
    )
)
@job_argument
@click.option(
    "--grace",
    type=click.FloatRange(min=0, max=86_400),
    metavar="SECONDS",
    help="From SIGTERM to SIGKILL of its trainers.  [default: twice its longest step of late, at least 30]",
)
def stop(job: str, grace: float | None) -> None:
    """Stop JOB and wait until it has ended.

    Its trainers get SIGTERM. With the SDK they end the body of their loop and write a checkpoint of the last step that
    all ranks completed, if checkpoints are on; the command says which. Who has not ended after the grace is killed.
    Then the workers are released.
    """
    from tradewind.cli.jobs import stopping
    from tradewind.cli.jobs.oneshot import ask_master

    ask_master(lambda api: stopping.stop(api, job, grace))


@click.command(epilog=examples("tradewind rm mnist"))
@job_argument
@json_option
def rm(job: str, as_json: bool) -> None:
    """Remove JOB, which has ended: its record, logs, events and costs. Its name is free afterwards.

    What it has cost can be seen before: tradewind cost JOB. Checkpoints and other files of the job are not touched.
    """
    from tradewind.cli.jobs import asking
    from tradewind.cli.jobs.oneshot import ask_master

    ask_master(lambda api: asking.remove(api, job, as_json=as_json))
