"""The command that shows which machines may be had where: a master's view if one answers, the shipped data if none."""

import click

from tradewind.cli.options import json_option

ABOUT = """
\b
Examples:
  tradewind offers --gpu A100                 both sizes, the cheapest first
  tradewind offers --gpu L4 --region us-      where a zone's name begins so
  tradewind offers --region europe-west4 --json

\b
Prices are of the whole machine, host and GPUs. The master at TRADEWIND_API_URL (http://127.0.0.1:8800 if not set)
knows newer ones, and what was seen of each zone: how often a machine came when it was asked for, and how long it lived.
"""


@click.command(epilog=ABOUT)
@click.option("--gpu", metavar="NAME", help="Of this accelerator only: T4, L4, V100, A100, A100-40, A100-80, H100.")
@click.option("--region", metavar="NAME", help="In this region or zone only; `us-` is all that begin so.")
@json_option
def offers(gpu: str | None, region: str | None, as_json: bool) -> None:
    """Show which machines may be had where, at what price, and what was seen of them."""
    from tradewind.cli.offers.asking import show_offers

    show_offers(gpu, region or "", as_json=as_json)
