"""The command `tradewind`. A subcommand is loaded when it is called, and it loads what it starts when it starts it."""

import difflib
import importlib
import sys
from typing import NamedTuple

import click

from runtime.errors import Temporary, UserError


class Lazy(NamedTuple):
    module: str
    summary: str


SECTIONS: dict[str, dict[str, Lazy]] = {
    "Try it": {
        "demo": Lazy("tradewind.cli.demo", "Train a small model through a kill and a join, and check every claim."),
        "run": Lazy("tradewind.cli.run", "Run a training script on this machine, as torchrun would."),
    },
    "Jobs": {
        "submit": Lazy("tradewind.cli.submit", "Submit the job that a YAML file describes."),
        "status": Lazy("tradewind.cli.status", "Show all jobs, or one job with its workers."),
        "logs": Lazy("tradewind.cli.logs", "Show what the ranks of a job print."),
        "events": Lazy("tradewind.cli.events", "Show what happened, and why."),
        "scale": Lazy("tradewind.cli.scale", "Give a job more workers or fewer."),
        "reload": Lazy("tradewind.cli.reload", "Let a job take its code anew while it trains."),
        "stop": Lazy("tradewind.cli.stop", "Stop a job."),
        "rm": Lazy("tradewind.cli.rm", "Remove a job that has ended, and free its name."),
    },
    "Capacity": {
        "offers": Lazy("tradewind.cli.offers", "Show which machines may be had where, and at what price."),
        "cost": Lazy("tradewind.cli.cost", "Show what a job has cost, and where that leads."),
        "budget": Lazy("tradewind.cli.budget", "Show what a job may spend, and raise it."),
        "plan": Lazy("tradewind.cli.plan", "Show where a job would train, how fast and for how much."),
        "explain": Lazy("tradewind.cli.explain", "Show the last decisions about a job, and why they were made."),
        "reap": Lazy("tradewind.cli.reap", "Show what belongs to no live job in the cloud, and remove it."),
    },
    "Roles": {
        "master": Lazy("tradewind.cli.master", "Start a master."),
        "cluster": Lazy("tradewind.cli.cluster", "Start the cluster-controller of plain processes on this machine."),
        "worker": Lazy("tradewind.cli.worker", "Start a worker-agent."),
        "simulator": Lazy("simulator.main", "Start a stand-in cloud whose machines are processes of this one."),
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
