"""The training state: all that must survive when the world changes, and its conversion to bytes and back.

It has two kinds of tensors:

- `tensors()`: parameters and the optimizer's tensors. Only a step changes them, so that between two steps a background
  thread may copy them (`copy_shard`) while the training thread computes.
- `buffers()`: the modules' other tensors. A forward pass may change them at any time, and differently on each rank
  (BatchNorm): one rank sends its own in the header, copied at the switch. The fingerprint does not include them.

The order of tensors depends only on the model and its optimizer. Parameters and modules are those that the model has
when the state is created; as in `state_dict()`, the state does not include non-persistent buffers.
"""

import struct
import zlib
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from tradewind.sdk.errors import StateDoesNotFit
from tradewind.sdk.training_state import optimizer_state
from tradewind.sdk.training_state.description import Description, decoded, encoded, require_fitting, require_plain
from tradewind.sdk.training_state.layout import entry, entry_nbytes, shard_bounds
from tradewind.sdk.training_state.tensor_bytes import Buffer, ByteViews, Staging, byte_view, bytes_of, over, read_into

_LENGTH = struct.Struct("!Q")
ELEMENTS = 64
"""Maximum number of elements of each tensor that a fingerprint reads."""


class Stateful(Protocol):
    """An object with a state that can be saved and loaded, such as a scheduler or a scaler."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object: ...


class TrainingState:
    def __init__(self, model: nn.Module, optimizer: Optimizer, others: Mapping[str, Stateful] | None = None) -> None:
        self._model = model.module if isinstance(model, DistributedDataParallel) else model
        self._optimizer = optimizer
        self._others = dict(others or {})
        self._parameters = list(self._model.named_parameters())
        self._names = {id(parameter): name for name, parameter in self._parameters}
        self._buffer_places = _persistent_buffers(self._model)
        self._extra_owners = [
            (name, module)
            for name, module in self._model.named_modules()
            if type(module).get_extra_state is not nn.Module.get_extra_state
        ]
        self._views = ByteViews()
        self._sampler = Sampler()
        for name, other in self._others.items():
            require_plain(name, other.state_dict())
        for name, module in self._extra_owners:
            require_plain(name, module.get_extra_state())

    def tensors(self) -> list[tuple[str, Tensor]]:
        return self._fixed() + [(_slot_name(slot), value) for slot, value in optimizer_state.slots(self._optimizer)]

    def buffers(self) -> list[tuple[str, Tensor]]:
        return [(name, getattr(module, key)) for name, module, key in self._buffer_places]

    def nbytes(self) -> int:
        """Bytes of `tensors()`, which shards consist of."""
        return sum(tensor.nbytes for tensor in self._values())

    def header(self) -> bytes:
        """Returns the description and the buffers. Call it on the training thread, at the switch."""
        described = encoded(self._description())
        return _LENGTH.pack(len(described)) + described + bytes_of([buffer for _, buffer in self.buffers()])

    def copy_shard(self, shard: int, of: int, staging: Staging) -> memoryview:
        """Returns a copy of one shard, valid until the staging is used again. One thread calls it, between steps."""
        views = self._views.of(self._values())
        first, last = shard_bounds(shard, of, sum(view.nbytes for view in views))
        parts = []
        begin = 0
        for view in views:
            end = begin + view.nbytes
            if begin < last and end > first:
                parts.append(view[max(first - begin, 0) : last - begin])
            begin = end
        _gather(parts, staging.tensor(last - first))
        return staging.view(last - first)

    def load(self, header: Buffer, data: Buffer) -> None:
        """Loads the sender's state, bit for bit; existing tensors stay the same objects."""
        view = memoryview(header)
        (length,) = _LENGTH.unpack_from(view)
        described, buffers = view[_LENGTH.size : _LENGTH.size + length], view[_LENGTH.size + length :]
        there = decoded(bytes(described))
        require_fitting(there, self._description())
        self._write(
            there,
            _split(over(data), [entry_nbytes(each) for each in there.tensors]),
            _split(over(buffers), [entry_nbytes(each) for each in there.buffers]),
        )

    def kind(self) -> Description:
        """The description that another state must fit to be loaded here."""
        return self._description()

    def rates(self) -> list[float]:
        return optimizer_state.rates(self._optimizer)

    def fingerprint(self) -> int:
        """A number that differs between two states that are one step apart."""
        return self._sampler.fingerprint(self._values())

    def payload(self) -> dict[str, Any]:
        """A copy for a checkpoint, unaffected by later steps. `model` fits `load_state_dict` of the unwrapped model."""
        clones = {name: tensor.detach().cpu().clone() for name, tensor in self.tensors() + self.buffers()}
        tied = {
            alias: clones[self._names[id(parameter)]]
            for alias, parameter in self._model.named_parameters(remove_duplicate=False)
        }
        buffers = {name: clones.pop(name) for name, _ in self.buffers()}
        bulk = {name: clone for name, clone in clones.items() if name not in tied}
        return {"model": tied | buffers, "bulk": bulk, "description": encoded(self._description())}

    def restore(self, payload: Mapping[str, Any]) -> None:
        there = decoded(payload["description"])
        require_fitting(there, self._description())
        named = payload["model"] | payload["bulk"]
        self._write(
            there,
            [byte_view(named[each.name]) for each in there.tensors],
            [byte_view(named[each.name]) for each in there.buffers],
        )

    def _fixed(self) -> list[tuple[str, Tensor]]:
        """The tensors that exist before the first step: the model's parameters, and those only in the optimizer."""
        fixed: list[tuple[str, Tensor]] = list(self._parameters)
        for index, parameter in enumerate(optimizer_state.parameters(self._optimizer)):
            if id(parameter) not in self._names:
                fixed.append((f"outside.{index}", parameter))
        return fixed

    def _values(self) -> list[Tensor]:
        fixed = [tensor for _, tensor in self._fixed()]
        return fixed + [tensor for _, tensor in optimizer_state.slots(self._optimizer)]

    def _parameter_names(self) -> list[list[str]]:
        return [
            [self._names.get(id(parameter), "(not of the model)") for parameter in group["params"]]
            for group in self._optimizer.param_groups
        ]

    def _description(self) -> Description:
        slots = list(optimizer_state.slots(self._optimizer))
        fixed = [entry(name, tensor) for name, tensor in self._fixed()]
        return Description(
            tensors=fixed + [entry(_slot_name(slot), tensor) for slot, tensor in slots],
            slots=[slot for slot, _ in slots],
            buffers=[entry(name, buffer) for name, buffer in self.buffers()],
            optimizer=type(self._optimizer).__name__,
            parameters=self._parameter_names(),
            options=optimizer_state.options(self._optimizer),
            extra={name: module.get_extra_state() for name, module in self._extra_owners},
            others={name: other.state_dict() for name, other in self._others.items()},
        )

    @torch.no_grad()
    def _write(self, there: Description, sources: Sequence[Tensor], buffer_sources: Sequence[Tensor]) -> None:
        fixed = self._fixed()
        for (_, tensor), source in zip(fixed, sources, strict=False):
            read_into(tensor, source)
        slots = zip(there.slots, there.tensors[len(fixed) :], sources[len(fixed) :], strict=True)
        optimizer_state.write_slots(self._optimizer, list(slots))
        optimizer_state.write_options(self._optimizer, there.options)
        for (_, buffer), source in zip(self.buffers(), buffer_sources, strict=True):
            read_into(buffer, source)
        for name, module in self._extra_owners:
            module.set_extra_state(there.extra[name])
        for name, other in self._others.items():
            other.load_state_dict(there.others[name])


def _slot_name(slot: optimizer_state.Slot) -> str:
    index, key = slot
    return f"optimizer.{index}.{key}"


def _persistent_buffers(model: nn.Module) -> list[tuple[str, nn.Module, str]]:
    """Returns (name, module, key) of each buffer: a forward pass may replace the tensor itself."""
    kept = model.state_dict().keys()
    seen: set[int] = set()
    places = []
    for prefix, module in model.named_modules():
        for key, buffer in module.named_buffers(recurse=False):
            name = f"{prefix}.{key}" if prefix else key
            if name in kept and id(buffer) not in seen:
                seen.add(id(buffer))
                places.append((name, module, key))
    return places


def _gather(parts: list[Tensor], target: Tensor) -> None:
    """Copies all parts into the target. One call for all CPU tensors takes the interpreter's lock only once."""
    if all(part.device.type == "cpu" for part in parts) and parts:
        torch.cat(parts, out=target)
        return
    first = 0
    for part in parts:
        target[first : first + part.nbytes].copy_(part)
        first += part.nbytes


def _split(data: Tensor, sizes: list[int]) -> list[Tensor]:
    if data.nbytes != sum(sizes):
        raise StateDoesNotFit(f"the state has {sum(sizes)} bytes, but {data.nbytes} arrived")
    ends = list(accumulate(sizes))
    return [data[end - size : end] for end, size in zip(ends, sizes, strict=True)]


class Sampler:
    """Computes fingerprints, which show that two ranks have the same state; cheap enough for every step.

    A fingerprint reads up to ELEMENTS elements of each tensor, spread over all of it. A step changes nearly every
    element of parameters and optimizer state, so the fingerprint differs if a rank missed a step, applied one twice or
    has bytes of another state. The sampler reuses its views of the tensors until a tensor moves.
    """

    def __init__(self) -> None:
        self._addresses: list[int] = []
        self._groups: list[_Group] = []

    def fingerprint(self, tensors: list[Tensor]) -> int:
        addresses = [tensor.data_ptr() for tensor in tensors]
        if addresses != self._addresses:
            self._groups = _grouped(tensors)
            kept = all(tensor.is_contiguous() for tensor in tensors)
            self._addresses = addresses if kept else []
        crc = 0
        for group in self._groups:
            crc = group.crc32(crc)
        return crc


class _Group:
    """The sampled elements of all tensors of one dtype on one device, gathered by one operation."""

    def __init__(self, samples: list[Tensor]) -> None:
        self._samples = samples
        self._memory = bytearray(sum(sample.nbytes for sample in samples))
        self._target = over(self._memory).view(samples[0].dtype)
        self._on_cpu = samples[0].device.type == "cpu"

    def crc32(self, start: int) -> int:
        if self._on_cpu:
            torch.cat(self._samples, out=self._target)
        else:
            self._target.copy_(torch.cat(self._samples))
        return zlib.crc32(self._memory, start)


def _grouped(tensors: list[Tensor]) -> list[_Group]:
    samples: dict[tuple[str, str], list[Tensor]] = {}
    for tensor in tensors:
        if tensor.numel():
            samples.setdefault((str(tensor.dtype), tensor.device.type), []).append(_sample(tensor))
    return [_Group(samples[key]) for key in sorted(samples)]


def _sample(tensor: Tensor) -> Tensor:
    flat = tensor.detach().reshape(-1)
    return flat[:: -(-flat.numel() // ELEMENTS)]
