"""The description of a state, as bytes: its tensors, the optimizer's options, and the states of other objects.

torch.save writes it and torch's safe reader reads it, so bytes from the network cannot run code. Lists are one JSON
text, because torch.save calls Python for every object.
"""

import io
import json
import pickle
from typing import Any, NamedTuple

import torch

from tradewind.sdk.errors import StateDoesNotFit
from tradewind.sdk.training_state.layout import Entry, only_in_script, only_in_state, require_same
from tradewind.sdk.training_state.optimizer_state import Options, Slot

FORMAT = 1


class Description(NamedTuple):
    tensors: list[Entry]
    slots: list[Slot]
    """The slots of the last tensors, one each."""
    buffers: list[Entry]
    optimizer: str
    parameters: list[list[str]]
    """Names of the optimizer's parameters, by group."""
    options: Options
    extra: dict[str, Any]
    """By module: the result of `get_extra_state`."""
    others: dict[str, Any]

    @property
    def fixed(self) -> list[Entry]:
        """The tensors that exist before the first step."""
        return self.tensors[: len(self.tensors) - len(self.slots)]


def require_fitting(there: Description, here: Description) -> None:
    """Raises StateDoesNotFit unless the state fits here; the optimizer's tensors need not exist here yet."""
    require_same(there.fixed, here.fixed)
    require_same(there.buffers, here.buffers)
    if there.optimizer != here.optimizer:
        raise StateDoesNotFit(f"the state belongs to a {there.optimizer} optimizer, this script has {here.optimizer}")
    if there.parameters != here.parameters:
        theirs, ours = ([len(group) for group in side.parameters] for side in (there, here))
        raise StateDoesNotFit(
            f"the optimizer's groups hold {theirs} parameters in the state and {ours} in this script"
            if theirs != ours
            else "the order of parameters in the optimizer's groups differs between the state and this script"
        )
    for keepers, ours_too in ((there.others, here.others), (there.extra, here.extra)):
        for name in sorted(keepers.keys() ^ ours_too.keys()):
            raise StateDoesNotFit(only_in_state(name) if name in keepers else only_in_script(name))


def encoded(description: Description) -> bytes:
    tensors, slots, buffers, optimizer, parameters, options, extra, others = description
    lists = json.dumps([tensors, slots, buffers, optimizer, parameters])
    return saved({"format": FORMAT, "lists": lists, "options": tuple(options), "extra": extra, "others": others})


def decoded(data: bytes) -> Description:
    values = loaded(data)
    if values["format"] != FORMAT:
        raise StateDoesNotFit(f"the state has format {values['format']}, this version of tradewind reads {FORMAT}")
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
    """Raises TypeError at the start, not days later when the first worker joins, if a state cannot be sent."""
    try:
        loaded(saved(value))
    except (pickle.PickleError, AttributeError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise TypeError(
            f"the state of {owner!r} cannot be sent to other workers: it contains more than numbers, text, containers "
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
