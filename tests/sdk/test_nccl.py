"""What a group on NCCL makes of what its backend says. The backend needs a GPU, so another one is in its place."""

import os
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch._C._distributed_c10d import HashStore

from tradewind.sdk.groups import nccl
from tradewind.sdk.groups.builder import group_maker
from tradewind.sdk.groups.nccl import NcclGroup

CPU = torch.device("cpu")


class Operation:
    """As torch's own: over when it is done, failed or aborted; only a wait with a timeout tells of a failure."""

    def __init__(self, looks: float = 0, *, fails: bool = False) -> None:
        self._looks = looks
        self._fails = fails

    def is_completed(self) -> bool:
        self._looks -= 1
        return self._looks < 0

    def is_success(self) -> bool:
        raise NotImplementedError("WorkNCCL::isSuccess() is deprecated")

    def wait(self, timeout: timedelta | None = None) -> bool:
        if self._fails and timeout is not None:
            raise RuntimeError("NCCL communicator encountered error set by ProcessGroupNCCL")
        return True

    def abort(self) -> None:
        self._looks = 0


class Backend:
    """Sums of two ranks of which the other has the same numbers."""

    class Options:
        _timeout = timedelta()

    operation = Operation()
    """That all operations give back."""
    made: ClassVar[list["Backend"]] = []

    def __init__(self, _store: Any, rank: int, size: int, options: "Backend.Options") -> None:
        self.place = rank, size
        self.timeout = options._timeout
        self.on_error = os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"]
        self.aborts = 0
        Backend.made.append(self)

    def allreduce(self, tensors: list[Tensor], _options: Any) -> Operation:
        tensors[0].mul_(2)
        return Backend.operation

    def abort(self) -> None:
        self.aborts += 1
        Backend.operation.abort()


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Backend]]:
    monkeypatch.setattr(nccl, "_backend", lambda: Backend)
    monkeypatch.setattr(Backend, "operation", Operation())
    monkeypatch.setattr(Backend, "made", [])
    monkeypatch.setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    yield Backend


def a_group() -> NcclGroup:
    return NcclGroup(HashStore(), 0, 2, CPU)


def test_a_lost_peer_ends_no_survivor_and_a_long_step_no_group() -> None:
    a_group()
    [backend] = Backend.made
    assert (backend.place, backend.on_error) == ((0, 2), "0")
    assert backend.timeout >= timedelta(hours=1)


def test_an_operation_that_is_done_is_there() -> None:
    group, flat = a_group(), torch.ones(3)
    assert group.finish(group.all_reduce(flat), lambda: False)
    assert flat.tolist() == [2.0] * 3


def test_an_operation_that_failed_is_not() -> None:
    assert not a_group().finish(Operation(fails=True), lambda: False)


def test_a_halt_aborts_what_is_under_way_once() -> None:
    group = a_group()
    assert not group.finish(Operation(looks=float("inf")), lambda: True)
    group.cut()
    assert Backend.made[0].aborts == 1


def test_an_operation_that_ended_by_an_abort_does_not_count() -> None:
    group = a_group()
    group.cut()
    assert not group.finish(Operation(), lambda: False)


def test_waiting_is_told_of() -> None:
    waited: list[float] = []
    assert a_group().finish(Operation(looks=3), lambda: False, waited.append)
    assert len(waited) == 3 and waited == sorted(waited)


@pytest.mark.parametrize("operation", [Operation(fails=True), Operation(looks=float("inf"))], ids=["fails", "hangs"])
def test_a_group_that_does_not_come_together_is_none(operation: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backend, "operation", operation)
    monkeypatch.setattr(nccl, "_BUILD_S", 0.0)
    with pytest.raises(RuntimeError, match="did not come together"):
        a_group()


def test_each_rank_builds_on_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", used.append)
    second = torch.device("cuda", 1)
    make = group_maker(second)
    assert isinstance(make, partial) and make.args == (second,)
    monkeypatch.setattr(nccl.NcclGroup, "_try", lambda *_: None)
    group = make(HashStore(), 1, 2, "", tried=False)
    assert (used, group.rank, group.size) == ([second], 1, 2)
