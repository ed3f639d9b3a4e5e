"""Completion of commands, options and job names in the shells that click knows."""

import click
from click.shell_completion import get_completion_class

VARIABLE = "_TRADEWIND_COMPLETE"


@click.command(
    epilog="Example, once for every new shell:  echo 'eval \"$(tradewind completion bash)\"' >> ~/.bashrc",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of SHELL."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"There is no completion for {shell!r}.")
    click.echo(kind(context.find_root().command, {}, "tradewind", VARIABLE).source())
