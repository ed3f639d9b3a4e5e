"""Options and help of the commands for capacity. What they do is in a file of their own, loaded when they run."""

import math
from pathlib import Path

import click

from tradewind.cli.options import Whole, examples, job_argument, json_option

AT_MOST_USD = 1_000_000_000
LAST = 10
OFFERS_HELP = """
\b
Examples:
  tradewind offers --gpu A100                 both sizes, the cheapest first
  tradewind offers --gpu L4 --region us-      where a zone's name begins so
  tradewind offers --region europe-west4 --json

\b
Prices are of the whole machine, host and GPUs. The master at TRADEWIND_API_URL (http://127.0.0.1:8800 if not set)
knows newer ones, and what was seen of each zone: how often a machine came when it was asked for, and how long it lived.
"""
PLAN_HELP = """
\b
Examples:
  tradewind plan job.yaml                        anywhere that is offered
  tradewind plan job.yaml --fleet fleet.yaml     from the machines of a fleet only
  tradewind plan job.yaml --json

\b
`capacity:` in the job file says what is allowed and wanted, `profile:` what a step needs; if the master has measured a
job of that name, that counts. Nothing is created. Prices are those of the master at TRADEWIND_API_URL if one answers,
else those that came with the program.
"""
REAP_HELP = """
\b
Examples:
  tradewind reap --fleet fleet.yaml                what would be removed, and what it costs an hour
  tradewind reap --fleet fleet.yaml --yes          remove it
  tradewind reap --fleet fleet.yaml --clusters     the fleet's clusters, too: the end of a fleet

\b
Exit codes: 0 nothing is left to remove, 3 something was found and --yes was not given, 1 something could not be
removed, 2 the command could not be carried out.

\b
Which jobs live is asked of the master at TRADEWIND_API_URL (http://127.0.0.1:8800 if not set), if it has this fleet,
or, if it does not answer, read from the records on its bus, if TRADEWIND_NATS_URL names it. Nothing is guessed.
"""


@click.command(epilog=OFFERS_HELP)
@click.option("--gpu", metavar="NAME", help="Of this accelerator only: T4, L4, V100, A100, A100-40, A100-80, H100.")
@click.option("--region", metavar="NAME", help="In this region or zone only; `us-` is all that begin so.")
@json_option
def offers(gpu: str | None, region: str | None, as_json: bool) -> None:
    """Show which machines may be had where, at what price, and what was seen of them."""
    from tradewind.cli.offers import accelerators_named, show_offers
    from tradewind.cli.runner import run_command

    wanted = accelerators_named(gpu)
    run_command(lambda: show_offers(wanted, region or "", as_json=as_json))


@click.command(
    epilog=examples(
        "tradewind cost mnist",
        "tradewind cost mnist --steps 100000     with a forecast until that step is done",
        "tradewind cost mnist --json             whole numbers of micro-dollars",
    )
)
@job_argument
@click.option(
    "--steps",
    type=Whole(1, 10**12 - 1),
    help="Of the whole run, for the forecast; else `capacity.deadline.steps` or `hyperparameters.steps` of the job.",
)
@json_option
def cost(job: str, steps: int | None, as_json: bool) -> None:
    """Show what JOB has cost: in all, by zone, for 1,000 steps, what was wasted, and against on-demand.

    Every second of a machine counts at the price of that second, from its start to its end.
    """
    from tradewind.cli.cost import show_cost
    from tradewind.cli.runner import ask_master

    ask_master(lambda api: show_cost(api, job, steps, as_json=as_json))


def _dollars(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    try:
        usd = float(value)
    except ValueError:
        usd = math.nan
    if not 0 < usd <= AT_MOST_USD:
        raise click.BadParameter(f"{value!r} is not a number of dollars above 0 and up to {AT_MOST_USD:,}.")
    return usd


@click.command(
    epilog=examples(
        "tradewind budget mnist               what it may spend, what is left, and whether it is paused",
        "tradewind budget mnist 50            50 USD in all from now on; a paused job goes on if that is enough",
        "tradewind budget mnist --json        whole numbers of micro-dollars",
    )
)
@job_argument
@click.argument("usd", required=False, callback=_dollars)
@json_option
def budget(job: str, usd: float | None, as_json: bool) -> None:
    """Show what JOB may spend in all, or let it spend USD in all, with what is spent already.

    A job that has reached its budget gives its machines back and waits; it goes on once it is raised far enough.
    """
    from tradewind.cli.budget import show_budget
    from tradewind.cli.runner import ask_master

    ask_master(lambda api: show_budget(api, job, usd, as_json=as_json))


@click.command(epilog=PLAN_HELP)
@click.argument("jobfile", type=click.Path(path_type=Path), metavar="JOB.yaml")
@click.option("--fleet", type=click.Path(path_type=Path), metavar="FLEET.yaml", help="Only what this fleet may use.")
@json_option
def plan(jobfile: Path, fleet: Path | None, as_json: bool) -> None:
    """Show where the job of a YAML file would train, how fast and for how much, and what else was thought of."""
    from controlplane.fleet.files import read_fleet
    from tradewind.cli.plan import show_plan
    from tradewind.cli.runner import run_command
    from tradewind.client.jobfile import read_job

    spec = read_job(jobfile, "plan")
    machines = None if fleet is None else read_fleet(fleet)
    run_command(lambda: show_plan(spec, str(jobfile), machines, as_json=as_json))


@click.command(
    epilog=examples(
        "tradewind explain mnist               the last 10 decisions, the newest at the end",
        "tradewind explain mnist --last 50",
        "tradewind explain mnist --json        a line of JSON for each",
    )
)
@job_argument
@click.option("--last", type=Whole(1, 10_000), default=LAST, show_default=True, help="How many decisions to show.")
@json_option
def explain(job: str, last: int, as_json: bool) -> None:
    """Show the last decisions about JOB: placements, pools, shortages, worlds and money, each with its why.

    A placement is shown with those that were not chosen, and by how much they are worse.
    Everything that happened is in `tradewind events`.
    """
    from tradewind.cli.explain import show_decisions
    from tradewind.cli.runner import ask_master

    ask_master(lambda api: show_decisions(api, job, last, as_json=as_json))


@click.command(epilog=REAP_HELP)
@click.option(
    "--fleet",
    type=click.Path(path_type=Path),
    metavar="FLEET.yaml",
    envvar="TRADEWIND_FLEET",
    required=True,
    help="The fleet to check for leftovers; else TRADEWIND_FLEET.",
)
@click.option("--clusters", is_flag=True, help="Also the clusters that the fleet file names. End the master first.")
@click.option("--yes", is_flag=True, help="Remove what was found.")
@click.option(
    "--assume-no-jobs",
    is_flag=True,
    help="Do not ask the master: treat every job of this fleet as ended. Only if you are sure.",
)
@json_option
def reap(fleet: Path, clusters: bool, yes: bool, assume_no_jobs: bool, as_json: bool) -> None:
    """Show what is in the cloud with the fleet's label and belongs to no live job; with --yes remove it.

    Pools of jobs that have ended or that nobody knows, machines without a pool, clusters that the fleet file does not
    name. What is another fleet's, or nobody's that we know, is never touched.
    """
    from controlplane.fleet.files import read_fleet
    from tradewind.cli.orphans import Wish
    from tradewind.cli.reap import show_orphans
    from tradewind.cli.runner import run_command

    wish = Wish(clusters, yes, assume_no_jobs)
    read = read_fleet(fleet)
    run_command(lambda: show_orphans(read, fleet, wish, as_json=as_json), "error")
