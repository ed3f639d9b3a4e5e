"""A loader returns exactly the requested share, whatever it has read ahead."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.conftest import eventually_blocking
from tradewind.protocol.trainer import Ranges
from tradewind.sdk.data.loader import Collate, Loader, MapDataset
from tradewind.sdk.data.order import Order
from tradewind.sdk.errors import ReadFailed

ORDER = Order(size=100, batch=12, seed=3)
FIRST: Ranges = ((0, 4),)
OTHER: Ranges = ((4, 6), (9, 10))


class Squares:
    """Records each read and its thread; `gate` holds back the reads of all threads but the test's."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.inside = 0
        self.most_inside = 0
        self.broken: set[int] = set()

    def __getitem__(self, index: int) -> Tensor:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        self.asked.append((threading.current_thread().name, index))
        if threading.current_thread() is not threading.main_thread():
            self.gate.wait(20)
        self.inside -= 1
        if index in self.broken:
            raise KeyError("rotten")
        return torch.tensor(index**2)

    def asked_by(self, thread: str) -> list[int]:
        return [index for name, index in self.asked if name == thread]


class Batched(Squares):
    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        return [self[index] for index in indices]


@pytest.fixture
def make() -> Iterator[Callable[..., Loader]]:
    made: list[Loader] = []

    def loader(dataset: MapDataset, collate: Collate | None = None, prefetch: bool = True) -> Loader:
        made.append(Loader(dataset, ORDER, collate, prefetch=prefetch, ahead_from_s=0.0))
        return made[-1]

    yield loader
    for each in made:
        each.close()


@pytest.mark.parametrize("kind", [Squares, Batched])
@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("expected", [False, True])
def test_a_share_is_read_with_its_indices(
    make: Callable[..., Loader], kind: type[Squares], prefetch: bool, expected: bool
) -> None:
    loader = make(kind(), prefetch=prefetch)
    for step in range(5):
        if expected:
            loader.expect(step, OTHER)
        reading = loader.read(step, OTHER)
        assert list(reading.indices) == ORDER.indices(step, OTHER)
        assert reading.batch.tolist() == [index**2 for index in reading.indices]


def test_what_was_expected_is_read_ahead_on_the_other_thread_and_once(make: Callable[..., Loader]) -> None:
    dataset = Squares()
    loader = make(dataset)
    loader.expect(7, FIRST)
    loader.expect(7, FIRST)
    eventually_blocking(lambda: len(dataset.asked) == 4)
    assert list(loader.read(7, FIRST).indices) == dataset.asked_by("tradewind-loader")
    assert len(dataset.asked) == 4


@pytest.mark.parametrize(("step", "ranges"), [(8, FIRST), (7, OTHER), (7, ((0, 3),)), (7, ())])
def test_nothing_that_an_old_world_wanted_is_handed_out(make: Callable[..., Loader], step: int, ranges: Ranges) -> None:
    dataset = Squares()
    loader = make(dataset)
    loader.expect(7, FIRST)
    eventually_blocking(lambda: len(dataset.asked) == 4)
    assert list(loader.read(step, ranges).indices) == ORDER.indices(step, ranges)
    assert dataset.asked_by("MainThread") == ORDER.indices(step, ranges)
    assert list(loader.read(7, FIRST).indices) == ORDER.indices(7, FIRST)
    assert len(dataset.asked_by("MainThread")) == len(ORDER.indices(step, ranges)) + 4


def test_a_newer_expectation_takes_the_place_of_an_older_one(make: Callable[..., Loader]) -> None:
    dataset = Squares()
    dataset.gate.clear()
    loader = make(dataset)
    loader.expect(7, FIRST)
    eventually_blocking(lambda: dataset.asked)
    loader.expect(7, OTHER)
    dataset.gate.set()
    assert list(loader.read(7, OTHER).indices) == ORDER.indices(7, OTHER)
    assert dataset.asked_by("tradewind-loader") == ORDER.indices(7, FIRST)[:1] + ORDER.indices(7, OTHER)
    assert dataset.asked_by("MainThread") == []


def test_a_dropped_share_keeps_the_training_thread_for_one_sample_at_most_and_never_reads_beside_it(
    make: Callable[..., Loader],
) -> None:
    dataset = Squares()
    dataset.gate.clear()
    loader = make(dataset)
    loader.expect(7, FIRST)
    eventually_blocking(lambda: dataset.asked)
    opener = threading.Timer(0.05, dataset.gate.set)
    opener.start()
    assert list(loader.read(8, OTHER).indices) == ORDER.indices(8, OTHER)
    opener.join(20)
    assert len(dataset.asked_by("tradewind-loader")) == 1
    assert dataset.most_inside == 1


def test_an_empty_share_reads_nothing(make: Callable[..., Loader]) -> None:
    dataset = Squares()
    loader = make(dataset)
    loader.expect(0, ())
    reading = loader.read(0, ())
    assert reading.batch is None and reading.indices == () and dataset.asked == []


@pytest.mark.parametrize("expected", [False, True])
@pytest.mark.parametrize(("kind", "named"), [(Squares, "sample {}"), (Batched, "samples .*{}")])
def test_an_error_of_the_dataset_surfaces_where_the_share_is_read_and_names_the_sample(
    make: Callable[..., Loader], expected: bool, kind: type[Squares], named: str
) -> None:
    dataset = kind()
    bad = ORDER.indices(7, FIRST)[2]
    dataset.broken.add(bad)
    loader = make(dataset)
    if expected:
        loader.expect(7, FIRST)
    with pytest.raises(ReadFailed, match=named.format(bad) + r".* of step 7: KeyError\('rotten'\)") as raised:
        loader.read(7, FIRST)
    assert isinstance(raised.value.__cause__, KeyError)
    loader.expect(8, OTHER)
    assert list(loader.read(8, OTHER).indices) == ORDER.indices(8, OTHER)


def test_an_error_in_a_share_that_nobody_wants_any_more_is_not_heard_of(make: Callable[..., Loader]) -> None:
    dataset = Squares()
    dataset.broken.update(set(ORDER.indices(7)) - set(ORDER.indices(8)))
    loader = make(dataset)
    loader.expect(7, FIRST)
    eventually_blocking(lambda: dataset.asked)
    assert list(loader.read(8, FIRST).indices) == ORDER.indices(8, FIRST)
    with pytest.raises(ReadFailed):
        loader.read(7, FIRST)


def test_a_batched_dataset_with_too_few_samples_is_an_error(make: Callable[..., Loader]) -> None:
    class Short(Squares):
        def __getitems__(self, indices: list[int]) -> list[Tensor]:
            return [self[index] for index in indices[1:]]

    wanted = ", ".join(map(str, ORDER.indices(0, FIRST)))
    with pytest.raises(ReadFailed, match=rf" 3 samples .* {wanted} .* 0$"):
        make(Short()).read(0, FIRST)


def test_the_scripts_own_collate_function_is_used(make: Callable[..., Loader]) -> None:
    assert make(Squares(), collate=len).read(0, OTHER).batch == 3


def test_default_collation_keeps_the_structure_of_samples(make: Callable[..., Loader]) -> None:
    class Pairs:
        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            return torch.full((2,), float(index)), index % 2

    inputs, labels = make(Pairs()).read(0, FIRST).batch
    assert inputs.shape == (4, 2)
    assert labels.tolist() == [index % 2 for index in ORDER.indices(0, FIRST)]


def test_a_closed_loader_reads_on_the_training_thread(make: Callable[..., Loader]) -> None:
    dataset = Squares()
    loader = make(dataset)
    loader.close()
    loader.expect(0, FIRST)
    assert list(loader.read(0, FIRST).indices) == dataset.asked_by("MainThread")


SCRIPT = """
import os, sys, threading, time
from tradewind.sdk.data.loader import Loader
from tradewind.sdk.data.order import Order

class Slow:
    def __getitem__(self, index):
        if threading.current_thread() is not threading.main_thread():
            started.set()
            time.sleep(float(sys.argv[2]))
        return index

started = threading.Event()
loader = Loader(Slow(), Order(50, 4, 0), ahead_from_s=0.0)
loader.expect(0, ((0, 4),))
assert started.wait(20)
if sys.argv[1] == "fork":
    child = os.fork()
    if child == 0:
        loader.expect(1, ((0, 2),))
        os._exit(len(loader.read(0, ((0, 4),)).indices))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
print("ended")
"""


@pytest.mark.parametrize(("mode", "sleep_s"), [("exit", "0.2"), ("exit", "1000"), ("fork", "0.5")])
def test_a_script_ends_and_forks_in_the_middle_of_reading_ahead(tmp_path: Path, mode: str, sleep_s: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    root = str(Path(__file__).parents[2])
    ended = subprocess.run(
        [sys.executable, str(script), mode, sleep_s],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ended\n", "")


def test_what_is_read_in_no_time_is_not_read_ahead() -> None:
    threads: set[str] = set()

    class Watched:
        def __getitem__(self, index: int) -> int:
            threads.add(threading.current_thread().name)
            return index

    loader = Loader(Watched(), ORDER, ahead_from_s=60.0)
    for step in range(4):
        loader.read(step, ((0, 2),))
        loader.expect(step + 1, ((0, 2),))
    loader.close()
    assert threads == {threading.current_thread().name}
