"""The cost of a job as text: its lines and its table."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from controlplane.catalog.links import BYTES_PER_GIB
from messages.costs import CostLine, CostView
from tradewind.terminal import output, tables

WASTES = ("starting", "recovering", "idle")


def cost_lines(view: CostView) -> Iterator[str]:
    yield f"Job {view.job} has cost {output.usd(view.micro_usd)}: {_parts(view)}."
    if view.note:
        yield view.note
    if view.machines:
        machines = "1 machine costs" if view.machines == 1 else f"{view.machines} machines cost"
        yield output.labelled("now", f"{machines} {output.usd(view.micro_usd_per_hour)} an hour")
    yield output.labelled("1,000 steps", _steps(view))
    if view.measured is not None:
        yield output.labelled("a step", output.step_text(view.measured))
    if view.nodes_micro_usd:
        yield output.labelled("wasted", _wasted(view))
        yield output.labelled("on demand", _on_demand(view))
    if len(view.by_region) > 1:
        by_region = sorted(view.by_region.items(), key=lambda each: -each[1])
        yield output.labelled("regions", ", ".join(f"{region} {output.usd(amount)}" for region, amount in by_region))
    if not view.ended:
        yield output.labelled("forecast", _forecast(view))
    if view.budget_micro_usd is not None:
        yield output.labelled("budget", f"{output.usd(view.budget_micro_usd)} in all{_paused(view)}")
    if view.unpriced_node_s:
        time = output.duration(view.unpriced_node_s)
        yield output.labelled("unpriced", f"{time} of machines without a known price count as free")


def _paused(view: CostView) -> str:
    return f"; paused: {view.paused}" if view.paused else ""


def _parts(view: CostView) -> str:
    hours = f"{view.node_s / 3600:.2f} node-hours"
    if not view.egress:
        return hours
    sent_gib = sum(line.sent_bytes for line in view.egress) / BYTES_PER_GIB
    nodes, egress = output.usd(view.nodes_micro_usd), output.usd(view.egress_micro_usd)
    return f"{nodes} for {hours} and about {egress} for {sent_gib:.1f} GiB of egress"


def _steps(view: CostView) -> str:
    if view.micro_usd_per_1000_steps is None:
        return "no step was reported" if view.ended else "no step was reported yet"
    samples = f" and {view.samples:,} samples" if view.samples else ""
    return f"{output.usd(view.micro_usd_per_1000_steps)}, over {view.steps:,} steps{samples}"


def _wasted(view: CostView) -> str:
    wasted = sum(view.by_activity.get(activity, 0) for activity in WASTES)
    parts = ", ".join(f"{output.usd_text(view.by_activity.get(activity, 0))} {activity}" for activity in WASTES)
    return f"{output.usd(wasted)}, {wasted / view.nodes_micro_usd:.1%} of the machines' cost: {parts}"


def _on_demand(view: CostView) -> str:
    saved = 1 - view.nodes_micro_usd / view.on_demand_micro_usd if view.on_demand_micro_usd else 0.0
    outcome = f"{saved:.0%} saved on machines" if saved >= 0 else f"{-saved:.0%} more paid"
    return f"{output.usd(view.on_demand_micro_usd)} for the same machines: {outcome}"


def _forecast(view: CostView) -> str:
    forecast = view.forecast
    if forecast is None:
        return "none before the first step" if not view.steps else "needs the number of steps: --steps N"
    if not forecast.remaining_steps:
        return f"all {forecast.steps:,} steps are done"
    if not forecast.remaining_micro_usd:
        return f"{output.count(forecast.remaining_steps, 'step')} of {forecast.steps:,} remain, at no cost"
    time = f" in about {output.duration(forecast.remaining_s)}" if forecast.remaining_s is not None else ""
    more = output.usd(forecast.remaining_micro_usd)
    return f"{output.usd(forecast.micro_usd)} when {forecast.steps:,} steps are done: {more} more{time}"


def cost_table(lines: Sequence[CostLine]) -> Table:
    """The table of costs by machine and zone, the highest first."""
    columns = ("ZONE", "GPU", "MACHINE", "BOUGHT", ">NODE-HOURS", ">USD", ">OF USE")
    return tables.table(columns, (_row(line) for line in sorted(lines, key=lambda line: -line.micro_usd)))


def _row(line: CostLine) -> tuple[str, ...]:
    return (
        line.zone,
        line.accelerator or output.NOTHING,
        line.machine_type,
        "spot" if line.spot else "on demand",
        f"{line.node_s / 3600:.2f}",
        output.usd_text(line.micro_usd),
        f"{line.working_micro_usd / line.micro_usd:.0%}" if line.micro_usd else output.NOTHING,
    )
