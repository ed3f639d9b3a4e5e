"""All of a state that is not bulk, as bytes: what tensors there are, the optimizer's options, the others' states.

Written with torch.save and read with its safe reader: what comes over the wire can name no code to run. Lists are
put in as one JSON text, because torch.save calls Python for every object it is given.
"""

import io
import json
import pickle
from typing import Any, NamedTuple

import torch

from tradewind.sdk.errors import StateDoesNotFit
from tradewind.sdk.training_state.layout import Entry, require_same
from tradewind.sdk.training_state.optimizer_state import Options, Slot

FORMAT = 1


class Description(NamedTuple):
    tensors: list[Entry]
    slots: list[Slot]
    """Of the last tensors, one each."""
    buffers: list[Entry]
    optimizer: str
    parameters: list[list[str]]
    """Their names, by group."""
    options: Options
    extra: dict[str, Any]
    """By module: what `get_extra_state` gave."""
    others: dict[str, Any]

    @property
    def fixed(self) -> list[Entry]:
        """All that exists before the first step."""
        return self.tensors[: len(self.tensors) - len(self.slots)]


def require_fitting(there: Description, here: Description) -> None:
    """Everything is compared before anything is changed; the optimizer's tensors need not exist here yet."""
    require_same(there.fixed, here.fixed)
    require_same(there.buffers, here.buffers)
    if there.optimizer != here.optimizer:
        raise StateDoesNotFit(f"the state is of the optimizer {there.optimizer}, this script has {here.optimizer}")
    if there.parameters != here.parameters:
        theirs, ours = ([len(group) for group in side.parameters] for side in (there, here))
        raise StateDoesNotFit(
            f"the optimizer's groups hold {theirs} parameters in the state and {ours} in this script"
            if theirs != ours
            else "the optimizer's groups hold the parameters in another order in the state than in this script"
        )
    for keepers, ours_too in ((there.others, here.others), (there.extra, here.extra)):
        for name in sorted(keepers.keys() ^ ours_too.keys()):
            where = "the state but not in this script" if name in keepers else "this script but not in the state"
            raise StateDoesNotFit(f"{name!r} is in {where}")


def encoded(description: Description) -> bytes:
    tensors, slots, buffers, optimizer, parameters, options, extra, others = description
    lists = json.dumps([tensors, slots, buffers, optimizer, parameters])
    return saved({"format": FORMAT, "lists": lists, "options": tuple(options), "extra": extra, "others": others})


def decoded(data: bytes) -> Description:
    values = loaded(data)
    if values["format"] != FORMAT:
        raise StateDoesNotFit(f"the state is of format {values['format']}, this version of tradewind reads {FORMAT}")
    tensors, slots, buffers, optimizer, parameters = json.loads(values["lists"])
    return Description(
        tensors=_entries(tensors),
        slots=[(index, key) for index, key in slots],
        buffers=_entries(buffers),
        optimizer=optimizer,
        parameters=parameters,
        options=Options(*values["options"]),
        extra=values["extra"],
        others=values["others"],
    )


def require_plain(owner: str, value: object) -> None:
    """Raised at the start rather than when the first machine joins, days later."""
    try:
        loaded(saved(value))
    except (pickle.PickleError, AttributeError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise TypeError(
            f"the state of {owner!r} cannot be given to another machine: it holds more than numbers, text, containers "
            f"and tensors (torch.serialization.add_safe_globals allows more types): {reason}"
        ) from error


def saved(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def loaded(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def _entries(listed: list[list[Any]]) -> list[Entry]:
    return [Entry(name, tuple(shape), dtype, on_cpu) for name, shape, dtype, on_cpu in listed]
