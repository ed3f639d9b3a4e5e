"""The program `python -m tradewind.trial`, which `deploy/gke-trial.sh` runs."""

import argparse
import asyncio
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import msgspec

from controlplane.clouds.gke.fleet_file import GkeFleet
from controlplane.fleet.files import read_fleet
from runtime.errors import TradewindError, UserError
from runtime.exit_codes import EXIT_USER_ERROR
from tradewind.client.api import connected
from tradewind.client.jobfile import read_job
from tradewind.terminal.foreground import quiet_logs
from tradewind.trial import checklist
from tradewind.trial.commands import Programs
from tradewind.trial.gcloud import Gcloud
from tradewind.trial.money_checks import worst_case_usd
from tradewind.trial.stage import Bounds, Scarce, Trial

SCARCE = "a2-highgpu-1g/nvidia-tesla-a100/us-central1-a"


def main(argv: Sequence[str] | None = None) -> int:
    given = _options().parse_args(argv)
    quiet_logs()
    try:
        return asyncio.run(_main(given))
    except TradewindError as error:
        hint = getattr(error, "hint", "")
        print(f"{error}\nNext: {hint}" if hint else error, file=sys.stderr)
        return EXIT_USER_ERROR


async def _main(given: argparse.Namespace) -> int:
    with _opened(given.log) as log:

        def note(text: str) -> None:
            print(text, file=log, flush=True)

        def say(text: str) -> None:
            print(text, flush=True)
            note(text)

        async with connected(os.environ) as api:
            fleet = read_fleet(given.fleet)
            if not isinstance(fleet, GkeFleet):
                raise UserError(
                    f"The fleet {fleet.name} is not in GKE alone.", "give a fleet file with `cloud.kind: gke`"
                )
            spec = read_job(given.job)
            capacity = spec.capacity
            if capacity is not None:
                capacity = msgspec.structs.replace(capacity, max_usd_total=given.max_usd)
            trial = Trial(
                fleet=fleet,
                spec=msgspec.structs.replace(spec, capacity=capacity),
                gcloud=Gcloud(Programs(note), fleet.cloud.project, fleet.name, dry_run=given.dry_run),
                api=api,
                scarce=given.scarce,
                billing_table=given.billing_table,
                dry_run=given.dry_run,
                bounds=given.bounds,
            )
            if given.action == "cleanup":
                return await checklist.clean_up(trial, say)
            await _reached(trial)
            worst_usd = worst_case_usd(trial, given.minutes)
            say(f"worst case: {worst_usd:.2f} USD in {given.minutes:g} minutes; limit: {given.max_usd:g} USD")
            if worst_usd > given.max_usd:
                raise UserError(
                    f"The worst case of {worst_usd:.2f} USD is above the limit of {given.max_usd:g} USD.",
                    "give fewer --minutes or a higher --max-usd",
                )
            return await checklist.run_all(trial, given.only or checklist.CHECKS, given.max_usd, say)


async def _reached(trial: Trial) -> None:
    """Check that Google and the master can be reached. Raises `TradewindError`."""
    if not await trial.gcloud.account():
        raise UserError("No account is logged in to gcloud.", "run `gcloud auth login`")
    await trial.api.health()


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gke-trial", description=__doc__)
    parser.add_argument("action", choices=["run", "cleanup"])
    parser.add_argument("--fleet", type=Path, required=True)
    parser.add_argument("--job", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--only", action="append", choices=list(checklist.CHECKS))
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--max-usd", type=_usd, default=50.0)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--billing-table", default="", metavar="PROJECT.DATASET.TABLE")
    parser.add_argument("--scarce", type=_scarce, default=SCARCE, metavar="MACHINE/GPU/ZONE")
    parser.add_argument("--bounds", type=_bounds, default=Bounds(), help=argparse.SUPPRESS)
    return parser


def _opened(log: Path) -> TextIO:
    try:
        return log.open("a", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write the log {log}: {error.strerror}.", "give another file with --log") from None


def _usd(text: str) -> float:
    amount = float(text)
    if not 0 < amount < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount above 0")
    return amount


def _scarce(text: str) -> Scarce:
    parts = text.split("/")
    if len(parts) != 3 or not all(parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not MACHINE/GPU/ZONE, such as {SCARCE}")
    return Scarce(*parts)


def _bounds(text: str) -> Bounds:
    return msgspec.json.decode(text.encode(), type=Bounds)


if __name__ == "__main__":
    sys.exit(main())
