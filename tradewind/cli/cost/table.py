"""What each kind of machine in each zone has cost."""

from collections.abc import Sequence

from rich.table import Table

from controlplane.catalog.money import usd_text
from messages.costs import CostLine
from tradewind.cli import tables

NOTHING = "–"


def cost_table(lines: Sequence[CostLine]) -> Table:
    """The dearest first."""
    columns = ("ZONE", "GPU", "MACHINE", "BOUGHT", ">NODE-HOURS", ">USD", ">OF USE")
    return tables.table(columns, (_row(line) for line in sorted(lines, key=lambda line: -line.micro_usd)))


def _row(line: CostLine) -> tuple[str, ...]:
    return (
        line.zone,
        line.accelerator or NOTHING,
        line.machine_type,
        "spot" if line.spot else "on demand",
        f"{line.node_s / 3600:.2f}",
        usd_text(line.micro_usd),
        f"{line.working_micro_usd / line.micro_usd:.0%}" if line.micro_usd else NOTHING,
    )
