"""`python -m tests.chaos --minutes 20 --seed 7`: four jobs train through kills, stops, forged messages and slow ranks.

The exit code is 0 if every check holds. The folder with all logs stays if one does not.
"""

import argparse
import asyncio
import shutil
import sys
import time
from pathlib import Path

import msgspec

from tests.chaos.checks import judge
from tests.chaos.faults import KV_KINDS, Kind, schedule
from tests.chaos.report import Report, lines, report
from tests.chaos.run import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="how long faults are injected")
    parser.add_argument("--seed", type=int, default=7, help="chooses the faults, their times and their victims")
    parser.add_argument(
        "--with-kv", action=argparse.BooleanOptionalAction, default=True, help="garbage in stored keys too"
    )
    parser.add_argument("--without", type=Kind, action="append", default=[], metavar="KIND", help="no such faults")
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs and traces")
    parser.add_argument("--plan", action="store_true", help="print the faults and run nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report to this file, too")
    options = parser.parse_args()
    if not options.with_kv:
        options.without += KV_KINDS
    if options.plan:
        for fault in schedule(options.seed, options.minutes, options.without):
            print(f"{_clock(fault.at_s)} {fault.kind} ({fault.target})")
        return 0
    try:
        reported = asyncio.run(_run(options))
    except KeyboardInterrupt:
        return 130
    for line in lines(reported):
        print(line, flush=True)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode(reported))
    return 0 if reported.holds else 1


async def _run(options: argparse.Namespace) -> Report:
    begun_s = time.monotonic()

    def say(line: str) -> None:
        print(f"{_clock(time.monotonic() - begun_s)} {line}", flush=True)

    evidence, stage = await run(options.seed, options.minutes, say, options.without)
    reported = report(options.seed, options.minutes, evidence, judge(evidence))
    if reported.holds and not options.keep:
        shutil.rmtree(stage.folder, ignore_errors=True)
    return reported


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02}:{int(seconds) % 60:02}"


if __name__ == "__main__":
    sys.exit(main())
