"""The report for people, in one screen."""

from rich.console import Group, RenderableType
from rich.text import Text

from tradewind.cli import present
from tradewind.cli.demo.cloud.report import cloud_lines
from tradewind.cli.demo.report import Report, World


def report_text(report: Report) -> RenderableType:
    return Group(
        Text(),
        present.table(
            ("GENERATION", ">WORLD", "STEPS", ">SECONDS", "WHY"),
            [
                (f"{world.generation}", f"{world.world_size}", _steps(world), f"{world.seconds:.1f}", world.why)
                for world in report.generations
            ],
        ),
        Text(),
        *(Text(line) for line in _lines(report)),
        Text(),
        *(Text.assemble(("✓ ", "green"), claim) for claim in report.checks),
        *(Text.assemble(("✗ ", "bold red"), problem) for problem in report.failed_checks),
    )


def _lines(report: Report) -> list[str]:
    return [
        f"{report.steps} steps with {report.samples} samples in {report.total_s:.0f} s, "
        f"loss {present.number(report.loss_first)} → {present.number(report.loss_last)}",
        *(f"killed {kill.worker} (rank {kill.rank}) after step {kill.after_step}" for kill in report.kills),
        *(f"joined {joined.worker} as rank {joined.rank} in generation {joined.generation}" for joined in report.joins),
        *(
            f"paused {pause.pause_s:.1f} s between generations {pause.from_generation} and {pause.to_generation}, "
            f"{pause.repeated_steps} steps repeated"
            for pause in report.pauses
        ),
        f"repeated in all: {report.repeated_steps} steps, {report.repeated_samples} samples",
        *(cloud_lines(report.cloud) if report.cloud is not None else ()),
    ]


def _steps(world: World) -> str:
    return "–" if world.first_step is None else f"{world.first_step}…{world.last_step}"
