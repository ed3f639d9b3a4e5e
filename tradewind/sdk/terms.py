"""What all ranks of a run must have alike, in words and with a digest of the rest.

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
    listed = [
        [(each.name, each.shape, each.dtype) for each in tensors],
        kind.parameters,
        sorted(kind.others),
        sorted(kind.extra),
        order.shuffled,
        {name: str(option) for name, option in sorted(options.items())},
    ]
    digest = hashlib.blake2b(json.dumps(listed).encode(), digest_size=4).hexdigest()
    return (
        f"{len(tensors)} tensors of {sum(math.prod(each.shape) for each in tensors):,} numbers, {kind.optimizer}, "
        f"{order.batch:,} of {order.size:,} samples a step, {steps:,} steps, seed {order.seed} [{digest}]"
    )


def require_same_terms(own: str, environ: MutableMapping[str, str]) -> None:
    """As those have who train already, if there are any. Of the first run only: another one joins nobody."""
    theirs = environ.pop(VARIABLE, "")
    if theirs and theirs != own:
        raise OtherTerms(
            f"this script has {own}; the run that it should join has {theirs}. In brackets: names, shapes and types of "
            "tensors and which of them are trained, the optimizer's groups, the names in `state`, the device, shuffle, "
            "clip_norm, scaler, scheduler and update. A run on other terms is another job"
        )
