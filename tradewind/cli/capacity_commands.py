"""Options and help of the commands for capacity. Each command's work is in its own file, loaded when it runs."""

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
  tradewind offers --gpu L4 --region us-      zones whose names begin with us-
  tradewind offers --region europe-west4 --json

\b
A price is for the whole machine, host and GPUs. If the master at TRADEWIND_API_URL (default: http://127.0.0.1:8800)
answers, it adds newer prices and its observations of zones: how often requests for a machine succeeded, and how long
machines lived.
"""
PLAN_HELP = """
\b
Examples:
  tradewind plan job.yaml                        from all offers
  tradewind plan job.yaml --fleet fleet.yaml     from the machines of a fleet only
  tradewind plan job.yaml --json

\b
`capacity:` in the job file has the limits and the objective, `profile:` has the needs of a step. Measurements of a job
with that name replace the profile. Nothing is created. Prices come from the master at TRADEWIND_API_URL if it answers,
otherwise from the data shipped with the program.
"""
REAP_HELP = """
\b
Examples:
  tradewind reap --fleet fleet.yaml                what would be removed, and its cost per hour
  tradewind reap --fleet fleet.yaml --yes          remove it
  tradewind reap --fleet fleet.yaml --clusters     also the fleet's clusters: the end of a fleet

\b
Exit codes: 0 nothing remains to remove; 1 something was found, and --yes was not given or the removal failed;
2 wrong use; 3 the cloud or the source of the live jobs does not answer.

\b
The live jobs come from the master at TRADEWIND_API_URL (default: http://127.0.0.1:8800) if it has this fleet. If no
master answers, they come from the records on the bus at TRADEWIND_NATS_URL. The command does not guess.
"""


@click.command(epilog=OFFERS_HELP)
@click.option(
    "--gpu",
    metavar="NAME",
    show_default="all",
    help="Show only this accelerator: T4, L4, V100, A100, A100-40, A100-80, H100.",
)
@click.option(
    "--region",
    metavar="NAME",
    show_default="all",
    help="Show only this region or zone; `us-` matches all names that begin with it.",
)
@json_option
def offers(gpu: str | None, region: str | None, as_json: bool) -> None:
    """Show the offered machines, their zones and prices, and the observations of them."""
    from tradewind.cli.offers import accelerators_named, show_offers
    from tradewind.cli.runner import run_command

    wanted = accelerators_named(gpu)
    run_command(lambda: show_offers(wanted, region or "", as_json=as_json))


@click.command(
    epilog=examples(
        "tradewind cost mnist",
        "tradewind cost mnist --steps 100000     with a forecast for 100,000 steps",
        "tradewind cost mnist --json             whole numbers of micro-dollars",
    )
)
@job_argument
@click.option(
    "--steps",
    type=Whole(1, 10**12 - 1),
    show_default="`capacity.deadline.steps` or `hyperparameters.steps` of the job",
    help="Steps of the whole run, for the forecast.",
)
@json_option
def cost(job: str, steps: int | None, as_json: bool) -> None:
    """Show the cost of JOB: in total, by zone, for 1,000 steps, its wasted part, and the on-demand price.

    Each second of a machine counts at its current price, from the machine's start to its end.
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
        raise click.BadParameter(f"{value!r} is not an amount above 0 and up to {AT_MOST_USD:,} USD.")
    return usd


@click.command(
    epilog=examples(
        "tradewind budget mnist               the budget, the rest, and whether the job is paused",
        "tradewind budget mnist 50            a total of 50 USD; a paused job continues if that is enough",
        "tradewind budget mnist --json        whole numbers of micro-dollars",
    )
)
@job_argument
@click.argument("usd", required=False, callback=_dollars)
@json_option
def budget(job: str, usd: float | None, as_json: bool) -> None:
    """Show the budget of JOB, or set it to a total of USD, which includes what is already spent.

    A job that reaches its budget releases its machines and waits. It continues when the budget is large enough.
    """
    from tradewind.cli.budget import show_budget
    from tradewind.cli.runner import ask_master

    ask_master(lambda api: show_budget(api, job, usd, as_json=as_json))


@click.command(epilog=PLAN_HELP)
@click.argument("jobfile", type=click.Path(path_type=Path), metavar="JOB.yaml")
@click.option(
    "--fleet",
    type=click.Path(path_type=Path),
    metavar="FLEET.yaml",
    show_default="all offers",
    help="Plan only with this fleet.",
)
@json_option
def plan(jobfile: Path, fleet: Path | None, as_json: bool) -> None:
    """Show where the job of a YAML file would train, how fast and at what cost, and the alternatives."""
    from controlplane.fleet.files import read_fleet
    from tradewind.cli.plan import show_plan
    from tradewind.cli.runner import run_command
    from tradewind.client.jobfile import read_job

    spec = read_job(jobfile, "plan")
    machines = None if fleet is None else read_fleet(fleet)
    run_command(lambda: show_plan(spec, str(jobfile), machines, as_json=as_json))


@click.command(
    epilog=examples(
        "tradewind explain mnist               the last 10 decisions, oldest first",
        "tradewind explain mnist --last 50",
        "tradewind explain mnist --json        a line of JSON for each decision",
    )
)
@job_argument
@click.option("--last", type=Whole(1, 10_000), default=LAST, show_default=True, help="Show only the last decisions.")
@json_option
def explain(job: str, last: int, as_json: bool) -> None:
    """Show the last decisions about JOB: placements, pools, shortages, worlds and money, each with its reason.

    A placement is shown with the rejected ones, and how much worse they are.
    `tradewind events` shows everything that happened.
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
    show_envvar=True,
    required=True,
    help="The fleet to check for leftover resources.",
)
@click.option("--clusters", is_flag=True, help="Include the clusters in the fleet file. End the master first.")
@click.option("--yes", is_flag=True, help="Remove the resources that are found.")
@click.option(
    "--assume-no-jobs",
    is_flag=True,
    help="Do not ask the master, and treat all jobs of this fleet as ended. Use it only if you are sure.",
)
@json_option
def reap(fleet: Path, clusters: bool, yes: bool, assume_no_jobs: bool, as_json: bool) -> None:
    """Show cloud resources with the fleet's label that no live job owns; with --yes remove them.

    They are pools of ended or unknown jobs, machines without a pool, and clusters that the fleet file does not name.
    Resources of other fleets, or without a label, are never touched.
    """
    from controlplane.fleet.files import read_fleet
    from tradewind.cli.orphans import Wish
    from tradewind.cli.reap import show_orphans
    from tradewind.cli.runner import run_command

    wish = Wish(clusters, yes, assume_no_jobs)
    read = read_fleet(fleet)
    run_command(lambda: show_orphans(read, fleet, wish, as_json=as_json), "error")
