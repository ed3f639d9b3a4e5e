"""The command `tradewind`.

`*_commands.py` hold options and help, and load `click` only. What a command does is in a file of its own name, which is
loaded when the command runs: help and completion stay quick.
"""

import difflib
import importlib
import sys
from typing import NamedTuple

import click

from runtime.errors import Temporary, UserError


class Lazy(NamedTuple):
    module: str
    summary: str


LOCAL = "tradewind.cli.local_commands"
JOBS = "tradewind.cli.job_commands"
CAPACITY = "tradewind.cli.capacity_commands"
ROLES = "tradewind.cli.role_commands"
SECTIONS: dict[str, dict[str, Lazy]] = {
    "Try it": {
        "demo": Lazy(LOCAL, "Train a small model through a kill and a join, and check every claim."),
        "run": Lazy(LOCAL, "Run a training script on this machine, as torchrun would."),
    },
    "Jobs": {
        "submit": Lazy(JOBS, "Submit the job that a YAML file describes."),
        "status": Lazy(JOBS, "Show all jobs, or one job with its workers."),
        "logs": Lazy(JOBS, "Show what the ranks of a job print."),
        "events": Lazy(JOBS, "Show what happened, and why."),
        "scale": Lazy(JOBS, "Give a job more workers or fewer."),
        "reload": Lazy(JOBS, "Reload a job's code while it trains."),
        "stop": Lazy(JOBS, "Stop a job."),
        "rm": Lazy(JOBS, "Remove a job that has ended, and free its name."),
    },
    "Capacity": {
        "offers": Lazy(CAPACITY, "Show which machines may be had where, and at what price."),
        "cost": Lazy(CAPACITY, "Show what a job has cost, and where that leads."),
        "budget": Lazy(CAPACITY, "Show what a job may spend, and raise it."),
        "plan": Lazy(CAPACITY, "Show where a job would train, how fast and for how much."),
        "explain": Lazy(CAPACITY, "Show the last decisions about a job, and why they were made."),
        "reap": Lazy(CAPACITY, "Show what belongs to no live job in the cloud, and remove it."),
    },
    "Roles": {
        "master": Lazy(ROLES, "Start a master."),
        "cluster": Lazy(ROLES, "Start the cluster-controller of plain processes on this machine."),
        "worker": Lazy(ROLES, "Start a worker-agent."),
        "simulator": Lazy("simulator.command", "Start a stand-in cloud whose machines are processes of this one."),
    },
    "More": {
        "completion": Lazy("tradewind.cli.completion", "Print the completion script of your shell."),
    },
}
COMMANDS = {name: lazy for commands in SECTIONS.values() for name, lazy in commands.items()}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(COMMANDS[cmd_name].module), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, lazy.summary) for name, lazy in commands.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with `tradewind demo`, or put `tradewind run` where you write `torchrun`.",
)
@click.version_option(package_name="tradewind", prog_name="tradewind")
def commands() -> None:
    """Train one PyTorch model across regions on spot GPUs, and keep it training while machines come and go."""


def main() -> None:
    try:
        commands(prog_name="tradewind")
    except (UserError, Temporary) as error:
        from runtime.process import tell

        sys.exit(tell(error))
