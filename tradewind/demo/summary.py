"""The report for people, in one screen."""

from rich.console import Group, RenderableType
from rich.text import Text

from tradewind.cli import output, tables
from tradewind.demo.changes import Change, Kind
from tradewind.demo.cloud.report import cloud_lines
from tradewind.demo.report import Report


def report_text(report: Report) -> RenderableType:
    return Group(
        Text(),
        tables.table(
            (">AFTER STEP", "WHAT HAPPENED", "WORLD", ">PAUSE", ">STEPS REPEATED"),
            [_row(change) for change in report.changes],
        ),
        Text(),
        *(Text(line) for line in _lines(report)),
        Text(),
        *(Text.assemble(("✓ ", "green"), claim) for claim in report.checks),
        *(Text.assemble(("✗ ", "bold red"), problem) for problem in report.failed_checks),
    )


def _row(change: Change) -> tuple[str, ...]:
    world = f"{change.world_before} → {change.world_after}"
    return f"{change.after_step}", change.what, world, f"{_ms(change.pause_s)}", f"{change.repeated_steps}"


def _lines(report: Report) -> list[str]:
    return [
        f"{report.steps} steps with {report.samples} samples in {report.total_s:.0f} s, "
        f"loss {output.number(report.loss_first)} → {output.number(report.loss_last)}",
        f"pause: how much longer the slowest step at a change took than a usual step ({_ms(report.step_s)}); "
        + _restarts(report),
        f"certificate: {report.certificate or 'none'}",
        *(cloud_lines(report.cloud) if report.cloud is not None else ()),
    ]


def _restarts(report: Report) -> str:
    restarts = sum(change.kind is Kind.RESTART for change in report.changes)
    return f"restarted {restarts} times" if restarts else "nobody was restarted"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
