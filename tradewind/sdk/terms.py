"""What all ranks of a run must have alike, in words and with a digest of the rest.

Files change while a job trains. Whoever joins with another model would break the sum of all the others, and with
another order of samples it would train on wrong ones: it is refused before anybody has heard of it.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Final

from tradewind.sdk.layout import Entry
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
        f"{len(tensors)} tensors of {sum(map(_numbers, tensors)):,} numbers, {kind.optimizer}, "
        f"{order.batch:,} of {order.size:,} samples a step, {steps:,} steps, seed {order.seed} [{digest}]"
    )


def require_same(own: str, environ: Mapping[str, str]) -> None:
    """As those have who train already, if there are any."""
    theirs = environ.get(VARIABLE)
    if theirs and theirs != own:
        raise OtherTerms(
            f"this script has {own}; the run that it should join has {theirs}. In brackets: names, shapes and types of "
            "tensors, the optimizer's groups, the names in `state`, shuffle, clip_norm, scaler. A run on other terms "
            "is another job"
        )


def _numbers(tensor: Entry) -> int:
    product = 1
    for size in tensor.shape:
        product *= size
    return product
