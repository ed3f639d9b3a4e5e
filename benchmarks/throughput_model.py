"""How far the throughput model is from published measured runs, for the plans that it can describe.

The runs are those with one pipeline stage in `sailor/validation` of the folder that TRADEWIND_TEST_DATA names: each
machine has a copy of the model, split over its GPUs. Compute times and bandwidths come from measured profiles; nothing
is fitted to the runs. The data has two sets of profiles, which differ for small batches; `--profiles` chooses.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from benchmarks import report
from controlplane.catalog.links import Link, Links
from controlplane.catalog.money import MicroDollars
from controlplane.catalog.places import Distance
from controlplane.throughput.estimate import Impossible, estimate
from controlplane.throughput.placement import Group, Placement
from controlplane.throughput.profile import Compute, Profile

DESCRIPTION: Final = "error of the throughput model against measured runs, in percent"
_NAME: Final = "throughput_model"
MEAN_PERCENT: Final = 15.0
MOST_PERCENT: Final = 30.0
_VARIABLE: Final = "TRADEWIND_TEST_DATA"
_DEFAULT: Final = Path(__file__).resolve().parents[2] / "shared" / "data"
_MODELS: Final = {"OPT-350": "OPT-350", "GPT-NEO": "GPT-Neo-2.7", "mit": "OPT-350"}
_BAD: Final = {
    "main_cf2c8e3/clariden/GPT-NEO/N4/plan_config_N4_D4.json": "carries the numbers of another model",
    "sosp25_ae_16eebd4/clariden/OPT-350/N4/plan_config_N4_D4.json": "its step takes as long as its communication alone",
}
TOGETHER: Final = "together"
APART: Final = "apart"
"""Sets of profiles: one file with all profiles, or one file for each model and accelerator."""
_BITS: Final = 8


class Round(Struct, frozen=True):
    run: str
    replicas: int
    measured_s: float
    estimated_s: float
    compute_s: float
    communication_s: float
    error_percent: float
    """Above zero if the model is too slow."""

    def raw(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields


class Replica(Struct, frozen=True):
    accelerator: str
    gpus: int


class Run(Struct, frozen=True):
    """A measured plan with one stage."""

    name: str
    model: str
    replicas: tuple[Replica, ...]
    micro_batch: int
    global_batch: int
    measured_s: float


def data_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    folder = Path(environ.get(_VARIABLE) or _DEFAULT) / "sailor"
    return folder if (folder / "validation").is_dir() else None


def all_rounds(folder: Path, profiles: str = TOGETHER) -> list[Round]:
    sizes = _json(folder / "model" / "llm_info.json")
    network = _json(folder / "network" / "network_coeffs_all_homo.json")["inter"]
    kinds = _profiles_together(folder) if profiles == TOGETHER else _profiles_apart(folder)
    return [_round(run, kinds[run.model], sizes[run.model], network) for run in one_stage_runs(folder)]


def _profiles_together(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = _json(folder / "model" / "simulator_profiles.json")
    return read


def _profiles_apart(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted((folder / "model" / "profiles").glob("*.json")):
        model, _, accelerator = path.stem.partition("_")
        found.setdefault(model, {})[accelerator] = _json(path)
    return found


def one_stage_runs(folder: Path) -> Iterator[Run]:
    """Runs without the known bad ones; a plan that two releases of the data measured counts as two runs."""
    for path in sorted((folder / "validation").rglob("plan_config_*.json")):
        name = path.relative_to(folder / "validation").as_posix()
        plan = _json(path)
        pipeline = plan["pipeline_list"][0]
        if name in _BAD or len(plan["pipeline_list"]) != 1 or pipeline["num_stages"] != 1:
            continue
        replicas = tuple(Replica(machines[0][0], degree) for machines, degree in pipeline["tmp_per_stage"][0])
        model = next(model for part, model in _MODELS.items() if part in name)
        yield Run(name, model, replicas, plan["mbs"], plan["gbs"], plan["real"])


def _round(run: Run, profiles: Any, sizes: Any, network: Any) -> Round:
    degree = run.replicas[0].gpus
    profile = Profile(
        compute={each.accelerator: _compute(run, profiles, each) for each in run.replicas},
        gradient_bytes=degree * sum(layer["params_bytes"] for layer in sizes[str(degree)].values()),
        global_batch=run.global_batch,
        replica_gpus=degree,
    )
    placement = Placement(tuple(_group(each, network) for each in run.replicas))
    found = estimate(profile, placement, _links())
    if isinstance(found, Impossible):
        raise ValueError(f"{run.name}: {found.why}")
    error = (found.step_s / run.measured_s - 1) * 100
    return Round(
        run=run.name.removesuffix(".json").replace("plan_config_", ""),
        replicas=found.replicas,
        measured_s=run.measured_s,
        estimated_s=round(found.step_s, 4),
        compute_s=round(found.compute_s, 4),
        communication_s=round(found.communication_s, 4),
        error_percent=round(error, 2),
    )


def _compute(run: Run, profiles: Any, replica: Replica) -> Compute:
    layers = profiles[replica.accelerator][str(run.micro_batch)][str(replica.gpus)].values()
    forward, backward, update = (sum(layer[part] for layer in layers) for part in range(3))
    return Compute((forward + backward) / run.micro_batch, update)


def _group(replica: Replica, network: Any) -> Group:
    """A group of one machine. `network` has bytes per second of all GPUs of a machine together."""
    return Group(
        zone="us-central1-a",
        accelerator=replica.accelerator,
        machines=1,
        gpus_per_machine=replica.gpus,
        micro_usd_per_machine_hour=MicroDollars(1_000_000),
        network_bit_per_s=network[replica.accelerator][str(replica.gpus)][1] * _BITS,
    )


def _links() -> Links:
    """Links so fast that only the machines' measured bandwidths limit."""
    return Links({far: Link(1e15, MicroDollars(0)) for far in Distance}, {})


def _json(path: Path) -> Any:
    return json.loads(path.read_text())


def _result(rounds: Sequence[Round]) -> report.Result:
    errors = [abs(each.error_percent) for each in rounds]
    limits = (
        report.Limit("mean", statistics.fmean(errors), MEAN_PERCENT),
        report.Limit("most", max(errors), MOST_PERCENT),
    )
    ok = all(limit.is_met for limit in limits)
    raw = tuple(each.raw() for each in rounds)
    return report.Result(_NAME, "percent", limits[0].ours, None, None, limits[0].target, ok, raw, limits)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput_model", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--profiles", choices=(TOGETHER, APART), default=TOGETHER, help="set of profiles (%(default)s)")
    options = parser.parse_args(arguments)
    folder = data_folder()
    if folder is None:
        print(f"skipped: {_VARIABLE} names no folder with sailor/validation", file=sys.stderr)
        return 0
    return report.publish(_result(all_rounds(folder, options.profiles)), as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
