"""A group on NCCL. The NCCL backend needs a GPU, so real groups on gloo take its place."""

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import AllreduceOptions, HashStore, ProcessGroupGloo, Work

from tradewind.sdk.groups import nccl
from tradewind.sdk.groups.builder import group_maker
from tradewind.sdk.groups.group import NOT_CONNECTED
from tradewind.sdk.groups.nccl import NcclGroup

CPU = torch.device("cpu")
BOUND_S = 30.0
ON_ERROR = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
GLOO: Any = ProcessGroupGloo  # torch's type stub lacks most of its methods


class Backend(GLOO):  # type: ignore[misc]
    """gloo, created as NCCL is. It cannot abort an operation, so it only counts aborts."""

    class Options(GLOO._Options):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._devices = [GLOO.create_device(hostname="127.0.0.1")]
            self._threads = 2

    def __init__(self, store: HashStore, rank: int, size: int, options: "Backend.Options") -> None:
        self.aborts = 0
        self.timeout = options._timeout
        self.on_error = os.environ[ON_ERROR]
        super().__init__(store, rank, size, options)
        # Never destroyed: its destructor waits for operations that a test leaves pending.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))

    def abort(self) -> None:
        self.aborts += 1


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "_backend", lambda: Backend)
    monkeypatch.setenv(ON_ERROR, "1")


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture
def groups(threads: ThreadPoolExecutor) -> list[NcclGroup]:
    """The connected groups of both ranks of a world."""
    store = HashStore()
    return list(threads.map(lambda rank: NcclGroup(store, rank, 2, CPU), range(2)))


def after(seconds: float) -> Callable[[], bool]:
    until_s = time.monotonic() + seconds
    return lambda: time.monotonic() > until_s


def finished(groups: list[NcclGroup], works: list[Work]) -> list[bool]:
    return [group.finish(work, after(BOUND_S)) for group, work in zip(groups, works, strict=True)]


def test_a_lost_peer_does_not_end_the_process_and_operations_may_take_long(groups: list[NcclGroup]) -> None:
    assert [(group.rank, group.size) for group in groups] == [(0, 2), (1, 2)]
    assert [group._group.on_error for group in groups] == ["0", "0"]
    assert all(group._group.timeout >= timedelta(hours=1) for group in groups)


def test_an_all_reduce_adds_up(groups: list[NcclGroup]) -> None:
    flats = [torch.ones(3), torch.full((3,), 2.0)]
    works = [group.all_reduce(flat) for group, flat in zip(groups, flats, strict=True)]
    assert finished(groups, works) == [True, True]
    assert [flat.tolist() for flat in flats] == [[3.0] * 3] * 2


def test_the_maximum_and_a_broadcast_reach_every_rank(groups: list[NcclGroup], threads: ThreadPoolExecutor) -> None:
    values, sent = [torch.tensor([1, 5]), torch.tensor([4, 2])], [torch.zeros(2), torch.ones(2)]

    def reduce(group: NcclGroup) -> list[bool]:
        works = [group.all_reduce_max(values[group.rank]), group.broadcast(sent[group.rank], 1)]
        return [group.finish(work, after(BOUND_S)) for work in works]

    assert list(threads.map(reduce, groups)) == [[True, True]] * 2
    assert [each.tolist() for each in values] == [[4, 5]] * 2
    assert [each.tolist() for each in sent] == [[1.0, 1.0]] * 2


def test_a_halt_ends_the_wait_for_a_silent_peer_and_aborts_once(groups: list[NcclGroup]) -> None:
    waited: list[float] = []
    group = groups[0]
    assert not group.finish(group.all_reduce(torch.ones(3)), after(0.05), waited.append)
    assert waited == sorted(waited) and 0.0 < waited[-1] < BOUND_S
    group.cut()
    assert group._group.aborts == 1


def test_a_cut_from_another_thread_ends_the_wait(groups: list[NcclGroup], threads: ThreadPoolExecutor) -> None:
    group = groups[0]
    waits = threads.submit(group.finish, group.all_reduce(torch.ones(3)), after(BOUND_S))
    began_s = time.monotonic()
    group.cut()
    assert waits.result(BOUND_S) is False
    assert time.monotonic() - began_s < BOUND_S / 2


def test_an_operation_does_not_count_after_an_abort(groups: list[NcclGroup]) -> None:
    works = [group.all_reduce(torch.ones(3)) for group in groups]
    assert groups[1].finish(works[1], after(BOUND_S))
    groups[0].cut()
    assert not groups[0].finish(works[0], after(BOUND_S))


def test_an_operation_that_fails_by_itself_does_not_count(
    groups: list[NcclGroup], recwarn: pytest.WarningsRecorder
) -> None:
    options = AllreduceOptions()
    options.timeout = timedelta(milliseconds=50)
    failing = groups[0]._group.allreduce([torch.ones(3)], options)
    assert not groups[0].finish(failing, after(BOUND_S))
    assert groups[0]._group.aborts == 0
    assert not recwarn.list


def test_a_group_whose_peer_takes_no_part_is_not_built(
    threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nccl, "_BUILD_S", 0.1)
    store = HashStore()
    silent = threads.submit(lambda: Backend(store, 1, 2, Backend.Options()))
    with pytest.raises(RuntimeError, match=NOT_CONNECTED):
        NcclGroup(store, 0, 2, CPU)
    assert silent.result(BOUND_S).aborts == 0


def test_each_rank_builds_on_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[torch.device] = []
    tried: list[float] = []
    monkeypatch.setattr(torch.cuda, "set_device", used.append)
    monkeypatch.setattr(NcclGroup, "_try", lambda _, until_s: tried.append(until_s))
    second = torch.device("cuda", 1)
    make = group_maker(second)
    assert isinstance(make, partial) and make.func is nccl.build
    group = make(HashStore(), 0, 1, "", tried=False)
    assert (used, group.rank, group.size) == ([second], 0, 1)
    assert isinstance(group, NcclGroup) and group._device == second and len(tried) == 1
