"""Tensors as bytes: views where they lie, copies where they must be, and memory that is ready to be written.

Bytes are in the order of the elements, whatever the strides: two sides may keep a tensor in different ways.
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
    """Memory that nobody has written to; a bytearray would be filled at once, while all other threads stand still."""
    return memoryview(mmap.mmap(-1, max(1, nbytes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))[:nbytes]


def written_ahead(nbytes: int) -> memoryview:
    """Memory that exists for real: a first write to fresh pages costs more than the copy."""
    memory = fresh(nbytes)
    over(memory).zero_()
    return memory


class Staging:
    """Where a copy is made while training waits for it."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._memory = written_ahead(nbytes)
        self._tensor = over(self._memory)

    def tensor(self, nbytes: int) -> Tensor:
        return self._tensor[:nbytes]

    def view(self, nbytes: int) -> memoryview:
        return self._memory[:nbytes]


def over(buffer: Buffer) -> Tensor:
    """The buffer's bytes as a tensor that shares its memory, or has a copy of it if the buffer may not be written."""
    view = memoryview(buffer)
    if view.nbytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(view) if view.readonly else view, dtype=torch.uint8)


def byte_view(tensor: Tensor) -> Tensor:
    """Shares memory with a contiguous tensor; of any other it is a copy."""
    return tensor.detach().reshape(-1).view(torch.uint8)


def read_into(tensor: Tensor, source: Tensor) -> None:
    """The tensor takes the bytes in place and stays the same object."""
    here = tensor.detach()
    if here.is_contiguous():
        byte_view(here).copy_(source)
    else:
        plain = torch.empty(here.shape, dtype=here.dtype)
        byte_view(plain).copy_(source)
        here.copy_(plain)


def checksum(data: bytearray | memoryview, start: int = 0) -> int:
    """Finds damage, not malice. Adding words up costs a fraction of a CRC of all bytes; the CRC is that of the sums.

    Words of one row that changed places go unseen, which no connection does."""
    view = memoryview(data)
    rows = view.nbytes // (_ROW_WORDS * _WORD_BYTES)
    if rows:
        words = torch.frombuffer(view, dtype=torch.int64, count=rows * _ROW_WORDS)
        start = zlib.crc32(struct.pack(f"<{rows}q", *words.view(rows, _ROW_WORDS).sum(dim=1).tolist()), start)
    return zlib.crc32(view[rows * _ROW_WORDS * _WORD_BYTES :], start)


def bytes_of(tensors: list[Tensor]) -> bytes:
    """All of them one after the other, from any device."""
    joined = bytearray(sum(tensor.nbytes for tensor in tensors))
    target = over(joined)
    first = 0
    for tensor in tensors:
        target[first : first + tensor.nbytes].copy_(byte_view(tensor))
        first += tensor.nbytes
    return bytes(joined)


class ByteViews:
    """Views of many tensors, kept from one call to the next as long as they lie where they lay.

    They keep the old memory alive, so that an address that is the same means the same tensor.
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
