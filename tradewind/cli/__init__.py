"""The command `tradewind`.

`*_commands.py` hold options and help and load only `click`. Each command's work is in a file with the command's name,
loaded when the command runs, so that help and completion are fast.
"""

import difflib
import importlib
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import click

from runtime.errors import Temporary, UserError
from runtime.exit_codes import EXIT_INTERRUPTED
from tradewind.cli.failures import reporter, tell_usage


class Lazy(NamedTuple):
    module: str
    summary: str


LOCAL = "tradewind.cli.local_commands"
JOBS = "tradewind.cli.job_commands"
CAPACITY = "tradewind.cli.capacity_commands"
PROCESSES = "tradewind.cli.process_commands"
SECTIONS: dict[str, dict[str, Lazy]] = {
    "Try it": {
        "demo": Lazy(LOCAL, "Train a small model through a kill and a join, and check each claim."),
        "run": Lazy(LOCAL, "Run a training script on this machine, as torchrun would."),
    },
    "Jobs": {
        "submit": Lazy(JOBS, "Submit the job that a YAML file describes."),
        "status": Lazy(JOBS, "Show all jobs, or one job with its workers."),
        "logs": Lazy(JOBS, "Show what the ranks of a job print."),
        "events": Lazy(JOBS, "Show what happened, and why."),
        "scale": Lazy(JOBS, "Change the number of workers of a job."),
        "reload": Lazy(JOBS, "Reload a job's code while it trains."),
        "stop": Lazy(JOBS, "Stop a job."),
        "rm": Lazy(JOBS, "Remove an ended job, and free its name."),
    },
    "Capacity": {
        "offers": Lazy(CAPACITY, "Show the offered machines, their zones and prices."),
        "cost": Lazy(CAPACITY, "Show the cost of a job, and a forecast."),
        "budget": Lazy(CAPACITY, "Show or raise the budget of a job."),
        "plan": Lazy(CAPACITY, "Show where a job would train, how fast and at what cost."),
        "explain": Lazy(CAPACITY, "Show the last decisions about a job, with their reasons."),
        "reap": Lazy(CAPACITY, "Show and remove cloud resources that no live job owns."),
    },
    "Processes": {
        "master": Lazy(PROCESSES, "Start a master."),
        "cluster": Lazy(PROCESSES, "Start a cluster-controller for processes on this machine."),
        "worker": Lazy(PROCESSES, "Start a worker-agent."),
        "simulator": Lazy("simulator.command", "Start a stand-in cloud whose machines are local processes."),
    },
    "More": {
        "completion": Lazy("tradewind.cli.completion", "Print the completion script of your shell."),
    },
}
COMMANDS = {name: lazy for commands in SECTIONS.values() for name, lazy in commands.items()}


EXIT_CODES = """
\b
Start with `tradewind demo`, or write `tradewind run` instead of `torchrun`.

\b
Exit codes:
  0    ok
  1    the job failed, or something remains to be done
  2    wrong use: correct it first
  3    not reachable: retry
  130  interrupted by ctrl-C; 143 by SIGTERM
`run` and `submit --wait` exit with the exit code of a script that failed.

\b
With --json, an error is one JSON object, the last line on standard error: docs/commands.md.
"""


class LazyGroup(click.Group):
    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> NoReturn:
        """Runs a command and exits; all errors end here."""
        given = [*(sys.argv[1:] if args is None else args)]
        try:
            code = super().main(given, *rest, **{**extra, "standalone_mode": False})
        except click.ClickException as error:
            code = tell_usage(error, as_json=self._wants_json(given))
        except (UserError, Temporary) as error:
            code = reporter(as_json=self._wants_json(given))(error)
        except click.Abort:
            code = EXIT_INTERRUPTED
        sys.exit(code)

    def _wants_json(self, args: Sequence[str]) -> bool:
        """Reads the arguments as they are, because the parser may have failed."""
        command = COMMANDS.get(args[0]) and self.get_command(click.Context(self), args[0]) if args else None
        options = {name for parameter in command.params for name in parameter.opts} if command is not None else set()
        return "--json" in options and "--json" in args

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
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog=EXIT_CODES,
)
@click.version_option(package_name="tradewind", prog_name="tradewind")
def commands() -> None:
    """Train one PyTorch model across regions on spot GPUs, and keep it training while machines come and go."""


def main() -> NoReturn:
    commands.main(prog_name="tradewind")
