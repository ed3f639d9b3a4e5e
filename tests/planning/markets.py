"""Random markets, jobs and current capacities, small enough to try every placement."""

from hypothesis import strategies as st

from controlplane.catalog.kinds import MachineKind
from controlplane.catalog.money import MicroDollars
from controlplane.planning.criteria import Criteria
from controlplane.planning.market import CurrentCapacity, Market, Option
from controlplane.throughput.profile import Compute, Profile
from messages.criteria import Objective
from tests.planning.builders import (
    ALL_GPUS,
    DISK_GB,
    HOLLAND,
    IOWA_A,
    IOWA_B,
    OREGON,
    USD,
    a_market,
    an_option,
    disks_of,
    gpus_of,
)

ZONES = (IOWA_A, IOWA_B, OREGON, HOLLAND)
ACCELERATORS = ("L4", "A100-40")
HOUR_S = 3600.0
PRICES = st.one_of(st.integers(20, 400), st.integers(20, 400), st.integers(20, 400), st.sampled_from((0, 10**11)))
"""Cents. Mostly realistic, but a price source may report anything."""


@st.composite
def options(draw: st.DrawFn, *, spot: bool) -> Option:
    accelerator = draw(st.sampled_from(ACCELERATORS))
    return an_option(
        draw(st.sampled_from(ZONES)),
        accelerator,
        draw(PRICES) / 100,
        spot=spot,
        limit=draw(st.integers(1, 4)),
        lifetime_s=draw(st.sampled_from((0.5, 2.0, 12.0))) * HOUR_S,
        availability=draw(st.sampled_from((0.3, 1.0))),
    )


@st.composite
def markets(draw: st.DrawFn, *, on_demand: bool = True) -> Market:
    found = draw(st.lists(options(spot=True), min_size=1, max_size=6))
    if on_demand:
        found += draw(st.lists(options(spot=False), max_size=3))
    regions = st.sampled_from(("us-central1", "us-west1"))
    own = st.builds(gpus_of, regions, st.sampled_from(ACCELERATORS), spot=st.booleans())
    shared = st.one_of(st.builds(disks_of, regions), st.just(ALL_GPUS))
    nodes = draw(st.dictionaries(st.one_of(own, shared), st.integers(0, 5), max_size=3))
    quotas = {key: count * (DISK_GB if key.metric == "DISK_GB" else 1) for key, count in nodes.items()}
    return a_market(*found, quotas=quotas)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    return Profile(
        compute={
            "L4": Compute(draw(st.sampled_from((0.01, 0.1))), draw(st.sampled_from((0.0, 0.2)))),
            "A100-40": Compute(draw(st.sampled_from((0.005, 0.03)))),
        },
        gradient_bytes=draw(st.sampled_from((0, 10**6, 10**8, 10**9))),
        global_batch=draw(st.sampled_from((4, 24, 64))),
        replica_gpus=draw(st.sampled_from((1, 1, 2))),
        overlap=draw(st.sampled_from((0.0, 0.5))),
    )


@st.composite
def criterias(draw: st.DrawFn) -> Criteria:
    least = draw(st.integers(1, 3))
    cap = draw(st.one_of(st.none(), st.integers(50, 2000)))
    return Criteria(
        min_workers=least,
        max_workers=least + draw(st.integers(0, 4)),
        objective=draw(st.sampled_from(Objective)),
        min_steps_per_s=draw(st.sampled_from((0.1, 1.0, 5.0))),
        max_micro_usd_per_hour=None if cap is None else MicroDollars(cap * USD // 100),
        on_demand=draw(st.sampled_from((0.0, 0.0, 0.5, 1.0))),
    )


@st.composite
def presents(draw: st.DrawFn, market: Market) -> CurrentCapacity:
    """Held nodes have one accelerator, like a world; they may exceed what is allowed now."""
    accelerator = draw(st.sampled_from(sorted({choice.accelerator for choice in market.options})))
    choices = [choice for choice in market.options if choice.accelerator == accelerator]
    return CurrentCapacity(
        held=draw(_nodes(choices)),
        in_flight=draw(_nodes(choices)),
        stocked_out=frozenset(draw(st.lists(st.sampled_from(list(market.options)), max_size=2))),
    )


def _nodes(choices: list[MachineKind]) -> st.SearchStrategy[dict[MachineKind, int]]:
    return st.dictionaries(st.sampled_from(choices), st.integers(1, 3), max_size=2)
