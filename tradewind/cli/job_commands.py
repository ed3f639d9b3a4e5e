"""Options and help of the commands for jobs. What they do is in a file of their own, loaded when they run."""

from pathlib import Path

import click

from tradewind.cli.options import Whole, examples, job_argument, json_option, some_job_argument


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
    from tradewind.cli.runner import ask_master
    from tradewind.cli.submit import submit_job
    from tradewind.client.jobfile import read_job

    spec = read_job(jobfile)
    ask_master(lambda api: submit_job(api, spec, replace=replace, wait=wait, as_json=as_json))


@click.command(
    epilog=examples(
        "tradewind status                     all jobs",
        "tradewind status mnist               one job and its workers",
        "tradewind status mnist --watch       again and again, until it ends",
        "tradewind status mnist --all         with all its workers, also thousands",
    )
)
@some_job_argument
@click.option("--watch", is_flag=True, help="Keep showing it, until ctrl-C or the job's end.")
@click.option("--all", "all_workers", is_flag=True, help="Show all workers of JOB, not only the first 200.")
@json_option
def status(job: str | None, watch: bool, all_workers: bool, as_json: bool) -> None:
    """Show all jobs, or one JOB with its workers."""
    if all_workers and (job is None or watch):
        raise click.UsageError("--all needs a JOB, and goes without --watch.")
    from tradewind.cli.runner import ask_master
    from tradewind.cli.status import show_status

    ask_master(lambda api: show_status(api, job, watch=watch, all_workers=all_workers, as_json=as_json))


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
    from tradewind.cli.logs import show_logs
    from tradewind.cli.runner import ask_master

    ask_master(lambda api: show_logs(api, job, rank=rank, tail=tail, follow=follow))


@click.command(
    epilog=examples(
        "tradewind events                     of everything",
        "tradewind events mnist --follow",
        "tradewind events mnist --tail 20     only the last 20",
        "tradewind events mnist --causes      with the message that led to each",
    )
)
@some_job_argument
@click.option("--follow", "-f", is_flag=True, help="Go on until the job's end, or until ctrl-C.")
@click.option("--tail", type=Whole(min=0), metavar="N", help="Only the last N events.")
@click.option("--causes", is_flag=True, help="Show the message that led to each event.")
@json_option
def events(job: str | None, follow: bool, tail: int | None, causes: bool, as_json: bool) -> None:
    """Show what happened to JOB, or to everything, and why."""
    from tradewind.cli.events import show_events
    from tradewind.cli.runner import ask_master

    ask_master(lambda api: show_events(api, job, follow=follow, tail=tail, causes=causes, as_json=as_json))


@click.command(epilog=examples("tradewind scale mnist 8"))
@job_argument
@click.argument("workers", type=Whole(min=1))
def scale(job: str, workers: int) -> None:
    """Let JOB have WORKERS workers from now on. It goes on training while they come or go."""
    from tradewind.cli.runner import ask_master
    from tradewind.cli.scale import scale_job

    ask_master(lambda api: scale_job(api, job, workers))


@click.command(epilog=examples("tradewind reload mnist", "tradewind events mnist --follow       see it happen"))
@job_argument
def reload(job: str) -> None:
    """Reload the code of JOB from its workdir or image.

    With the SDK it keeps training: its workers are replaced one after the other, each by a hand-over. If the new
    code does not work, the others stay as they are until it is mended. Without the SDK all its trainers are started
    again.
    """
    from tradewind.cli.reload import reload_job
    from tradewind.cli.runner import ask_master

    ask_master(lambda api: reload_job(api, job))


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
    from tradewind.cli.runner import ask_master
    from tradewind.cli.stop import stop_job

    ask_master(lambda api: stop_job(api, job, grace))


@click.command(epilog=examples("tradewind rm mnist"))
@job_argument
@json_option
def rm(job: str, as_json: bool) -> None:
    """Remove JOB, which has ended: its record, logs, events and costs. Its name is free afterwards.

    What it has cost can be seen before: tradewind cost JOB. Checkpoints and other files of the job are not touched.
    """
    from tradewind.cli.rm import remove_job
    from tradewind.cli.runner import ask_master

    ask_master(lambda api: remove_job(api, job, as_json=as_json))
