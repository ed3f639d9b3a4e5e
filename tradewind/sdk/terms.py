"""What all ranks of a run must have alike, in words and with a digest of what is too long for them.

Files change while a job trains. Whoever joins with another model would break the sum of all the others, and with
another order of samples it would train on wrong ones: it is refused before anybody has heard of it.
"""

import hashlib
import json
import math
from collections.abc import MutableMapping
from typing import Final

from tradewind.sdk.samples import Order
from tradewind.sdk.state import TrainingState

VARIABLE: Final = "TRADEWIND_TERMS"


class OtherTerms(ValueError):
    """This script is not the one that the others run."""


def terms_of(state: TrainingState, order: Order, steps: int, **options: object) -> str:
    """`options`: whatever else decides how a sum becomes the next state, as far as it can be compared."""
    kind = state.kind()
    tensors = [*kind.fixed, *kind.buffers]
    numbers = sum(math.prod(each.shape) for each in tensors)
    layout = _digest([(each.name, each.shape, each.dtype) for each in tensors], sorted(kind.extra))
    terms: dict[str, object] = {
        "model": f"{len(tensors)} tensors of {numbers:,} numbers [{layout}]",
        "optimizer": f"{kind.optimizer} [{_digest(kind.parameters)}]",
        "batch": order.batch,
        "samples": order.size,
        "steps": steps,
        "seed": order.seed,
        "shuffle": order.shuffled,
        "state": _digest(sorted(kind.others)),
        **{name: option if isinstance(option, bool | str) else str(option) for name, option in options.items()},
    }
    return json.dumps(terms, separators=(",", ":"))


def require_same_terms(own: str, environ: MutableMapping[str, str]) -> None:
    """As those have who train already, if there are any. Of the first run only: another one joins nobody."""
    theirs = environ.pop(VARIABLE, "")
    if theirs and theirs != own:
        raise OtherTerms(
            "this script is not the one that the run which it should join was begun with: "
            f"{_differences(own, theirs)}. A run on other terms is another job"
        )


def _differences(own: str, theirs: str) -> str:
    try:
        here, there = json.loads(own), dict(json.loads(theirs))
    except (ValueError, TypeError):
        return f"it has {own}, the run has {theirs}"
    names = [name for name in {**here, **there} if here.get(name) != there.get(name)]
    return ", ".join(f"{name} is {here.get(name)} here and {there.get(name)} there" for name in names)


def _digest(*listed: object) -> str:
    return hashlib.blake2b(json.dumps(listed).encode(), digest_size=4).hexdigest()
