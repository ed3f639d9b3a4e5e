"""Tensors as bytes: views or copies of tensors, and memory for them.

Bytes are in the order of the elements, independent of strides: two ranks may have different strides for a tensor.
"""

import mmap
import struct
import zlib
from typing import Final, TypeAlias

import torch
from torch import Tensor

Buffer: TypeAlias = bytes | bytearray | memoryview
_ROW_WORDS: Final = 8192
_WORD_BYTES: Final = 8


def fresh(nbytes: int) -> memoryview:
    """Returns memory that is not yet written to; creating a bytearray would block all threads while it is filled."""
    return memoryview(mmap.mmap(-1, max(1, nbytes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))[:nbytes]


def written_ahead(nbytes: int) -> memoryview:
    """Returns memory whose pages exist: the first write to a new page costs more than the copy."""
    memory = fresh(nbytes)
    over(memory).zero_()
    return memory


class Staging:
    """Memory for a copy that training waits for."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._memory = written_ahead(nbytes)
        self._tensor = over(self._memory)

    def tensor(self, nbytes: int) -> Tensor:
        return self._tensor[:nbytes]

    def view(self, nbytes: int) -> memoryview:
        return self._memory[:nbytes]


def over(buffer: Buffer) -> Tensor:
    """Returns the buffer's bytes as a tensor that shares its memory, or copies it if the buffer is read-only."""
    view = memoryview(buffer)
    if view.nbytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(view) if view.readonly else view, dtype=torch.uint8)


def byte_view(tensor: Tensor) -> Tensor:
    """Returns the bytes of a tensor: a view if it is contiguous, otherwise a copy."""
    return tensor.detach().reshape(-1).view(torch.uint8)


def read_into(tensor: Tensor, source: Tensor) -> None:
    """Writes the bytes into the tensor in place."""
    here = tensor.detach()
    if here.is_contiguous():
        byte_view(here).copy_(source)
    else:
        plain = torch.empty(here.shape, dtype=here.dtype)
        byte_view(plain).copy_(source)
        here.copy_(plain)


def checksum(data: bytearray | memoryview, start: int = 0) -> int:
    """A checksum against damage, not attacks: the CRC of sums of words, which costs less than a CRC of all bytes.

    It does not notice words of one row that changed places; connections do not damage data so.
    """
    view = memoryview(data)
    rows = view.nbytes // (_ROW_WORDS * _WORD_BYTES)
    if rows:
        words = torch.frombuffer(view, dtype=torch.int64, count=rows * _ROW_WORDS)
        start = zlib.crc32(struct.pack(f"<{rows}q", *words.view(rows, _ROW_WORDS).sum(dim=1).tolist()), start)
    return zlib.crc32(view[rows * _ROW_WORDS * _WORD_BYTES :], start)


def bytes_of(tensors: list[Tensor]) -> bytes:
    """Returns the bytes of all tensors one after the other, from any device."""
    joined = bytearray(sum(tensor.nbytes for tensor in tensors))
    target = over(joined)
    first = 0
    for tensor in tensors:
        target[first : first + tensor.nbytes].copy_(byte_view(tensor))
        first += tensor.nbytes
    return bytes(joined)


class ByteViews:
    """A cache of byte views of many tensors, valid while the tensors' addresses stay the same.

    The views keep the old memory alive, so that the same address means the same tensor.
    """

    def __init__(self) -> None:
        self._addresses: list[int] = []
        self._views: list[Tensor] = []

    def of(self, tensors: list[Tensor]) -> list[Tensor]:
        addresses = [tensor.data_ptr() for tensor in tensors]
        if addresses != self._addresses:
            self._views = [byte_view(tensor) for tensor in tensors]
            kept = all(tensor.is_contiguous() for tensor in tensors)
            self._addresses = addresses if kept else []
        return self._views
