"""Options and help of the commands for jobs. Each command's work is in its own file, loaded when it runs."""

from pathlib import Path

import click

from tradewind.cli.options import (
    Whole,
    examples,
    follow_option,
    job_argument,
    json_option,
    last_option,
    some_job_argument,
)


@click.command(
    epilog=examples(
        "tradewind submit job.yaml",
        "tradewind submit job.yaml --wait     follow the job, and exit with its result",
        "tradewind submit job.yaml --replace  replace the ended job of this name",
    )
)
@click.argument("jobfile", type=click.Path(path_type=Path), metavar="JOB.yaml")
@click.option(
    "--replace", is_flag=True, help="Remove an ended job of the same name first. A job that has not ended is refused."
)
@click.option("--wait", is_flag=True, help="Show what the ranks print until the job ends; exit with its result.")
@json_option
def submit(jobfile: Path, replace: bool, wait: bool, as_json: bool) -> None:
    """Submit the job that a YAML file describes.

    A relative workdir starts at the file's folder, which is the default; a relative script starts at the workdir.
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
        "tradewind status mnist --watch       until the job ends",
        "tradewind status mnist --all         with all its workers, even thousands",
    )
)
@some_job_argument
@click.option("--watch", is_flag=True, help="Update the output until the job ends or ctrl-C.")
@click.option("--all", "all_workers", is_flag=True, help="Show all workers of JOB, not only the first 200.")
@json_option
def status(job: str | None, watch: bool, all_workers: bool, as_json: bool) -> None:
    """Show all jobs, or one JOB with its workers."""
    if all_workers and (job is None or watch):
        raise click.UsageError("--all needs a JOB and excludes --watch.")
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
@click.option("--rank", type=Whole(min=0), show_default="all", help="Print only lines of this rank.")
@last_option("lines")
@follow_option
@json_option
def logs(job: str, rank: int | None, tail: int | None, follow: bool, as_json: bool) -> None:
    """Show what the ranks of JOB print: standard output and standard error, each line prefixed with its rank."""
    from tradewind.cli.logs import show_logs
    from tradewind.cli.runner import ask_master

    ask_master(lambda api: show_logs(api, job, rank=rank, tail=tail, follow=follow, as_json=as_json))


@click.command(
    epilog=examples(
        "tradewind events                     of all jobs",
        "tradewind events mnist --follow",
        "tradewind events mnist --tail 20     only the last 20",
        "tradewind events mnist --causes      with the message that caused each",
    )
)
@some_job_argument
@last_option("events")
@follow_option
@click.option("--causes", is_flag=True, help="Show the message that caused each event.")
@json_option
def events(job: str | None, follow: bool, tail: int | None, causes: bool, as_json: bool) -> None:
    """Show what happened to JOB, or to all jobs, and why."""
    from tradewind.cli.events import show_events
    from tradewind.cli.runner import ask_master

    ask_master(lambda api: show_events(api, job, follow=follow, tail=tail, causes=causes, as_json=as_json))


@click.command(epilog=examples("tradewind scale mnist 8"))
@job_argument
@click.argument("workers", type=Whole(min=1))
@json_option
def scale(job: str, workers: int, as_json: bool) -> None:
    """Change the number of workers of JOB to WORKERS. Training continues while workers join or leave."""
    from tradewind.cli.runner import ask_master
    from tradewind.cli.scale import scale_job

    ask_master(lambda api: scale_job(api, job, workers, as_json=as_json))


@click.command(epilog=examples("tradewind reload mnist", "tradewind events mnist --follow       see the changes"))
@job_argument
@json_option
def reload(job: str, as_json: bool) -> None:
    """Reload the code of JOB from its workdir or image.

    With the SDK, training continues: Tradewind replaces one worker after the other, each with a hand-over. If the new
    code fails, the other workers keep the old code until it is fixed. Without the SDK, all trainers restart.
    """
    from tradewind.cli.reload import reload_job
    from tradewind.cli.runner import ask_master

    ask_master(lambda api: reload_job(api, job, as_json=as_json))


@click.command(
    epilog=examples(
        "tradewind stop mnist",
        "tradewind stop mnist --grace 600     if a step or an evaluation takes minutes",
        "tradewind stop mnist --grace 0       at once, even while it is stopping",
    )
)
@job_argument
@click.option(
    "--grace",
    type=click.FloatRange(min=0, max=86_400),
    metavar="SECONDS",
    show_default="twice its longest recent step, at least 30",
    help="Seconds from SIGTERM to SIGKILL of its trainers.",
)
@json_option
def stop(job: str, grace: float | None, as_json: bool) -> None:
    """Stop JOB and wait until it has ended.

    Its trainers get SIGTERM. With the SDK, they end the body of their loop and write a checkpoint of the last step that
    all ranks completed, if checkpoints are on; the command names it. After the grace, trainers that still run are
    killed. Then the workers are released.
    """
    from tradewind.cli.runner import ask_master
    from tradewind.cli.stop import stop_job

    ask_master(lambda api: stop_job(api, job, grace, as_json=as_json))


@click.command(epilog=examples("tradewind rm mnist"))
@job_argument
@json_option
def rm(job: str, as_json: bool) -> None:
    """Remove a JOB that has ended: its record, logs, events and costs. Then its name is free.

    To see its costs first: tradewind cost JOB. Checkpoints and other files of the job stay.
    """
    from tradewind.cli.rm import remove_job
    from tradewind.cli.runner import ask_master

    ask_master(lambda api: remove_job(api, job, as_json=as_json))
