"""Groups are built beside the training: each build reports its result, and no build waits for a connection."""

import queue
from collections.abc import Callable, Iterator

import pytest
from torch._C._distributed_c10d import TCPStore

from tradewind.protocol.trainer import Assign, Entry, Store
from tradewind.sdk.groups import builder as building
from tradewind.sdk.groups.builder import Builder, LoneGroup, MakeGroup, StoreClients
from tradewind.sdk.groups.group import Built, Group, JoiningRank

BOUND_S = 30.0
REASON = "Connection closed by peer"


@pytest.fixture
def server() -> TCPStore:
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


@pytest.fixture
def store(server: TCPStore) -> Store:
    return Store("127.0.0.1", server.port)


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[TCPStore]]:
    """All connections to the store, in order."""
    made: list[TCPStore] = []
    connect = building._connect

    def count(store: Store) -> TCPStore:
        made.append(connect(store))
        return made[-1]

    monkeypatch.setattr(building, "_connect", count)
    yield made


def lone_group(*_: object, tried: bool) -> Group:
    return LoneGroup()


def ended(make: MakeGroup, assign: Assign, prepare: Callable[[JoiningRank, int], None] = lambda *_: None) -> list[bool]:
    """Runs one build. Returns for each of its reports if there is a group."""
    reported: queue.Queue[bool] = queue.Queue()
    builder = Builder(make, lambda _, built: reported.put(built is not None), lambda _: (1, "token"), prepare)
    builder.start(assign)
    first = reported.get(timeout=BOUND_S)  # torch's store now and then takes a second or two to connect
    builder.close()
    return [first, *(reported.get() for _ in range(reported.qsize()))]


def test_a_build_that_never_ends_leaves_a_connection_for_the_next(store: Store, connected: list[TCPStore]) -> None:
    clients = StoreClients()
    clients.give_back(store, clients.take(store))
    clients.keep_ready(store)
    made = len(connected)
    hangs, next_one = clients.take(store), clients.take(store)
    assert hangs is not next_one and len(connected) == made


def test_connections_are_made_ahead_but_only_after_the_group_is_reported(
    store: Store, connected: list[TCPStore]
) -> None:
    made: list[int] = []

    def on_built(_generation: int, built: Built | None) -> None:
        assert built is not None
        made.append(len(connected))

    builder = Builder(lone_group, on_built, lambda _: (1, "token"), lambda *_: None)
    for generation in (1, 2):
        builder.start(Assign(generation, 0, 2, "start", store))
        builder.close()
    assert (made, len(connected)) == ([1, 2], 2)


@pytest.mark.parametrize("error", [RuntimeError("lost\nand a trace"), OSError("full"), KeyError(), MemoryError()])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_failed_build_is_reported_for_any_error(store: Store, error: Exception) -> None:
    def fail(*_: object, tried: bool) -> Group:
        raise error

    assert ended(fail, Assign(3, 0, 2, "start", store)) == [False]


@pytest.mark.parametrize(("entry", "tried"), [("start", True), ("planned", True), ("repair", False)])
def test_only_after_a_loss_is_the_first_sum_the_trial(store: Store, entry: Entry, tried: bool) -> None:
    asked: list[bool] = []

    def make(*_: object, tried: bool) -> Group:
        asked.append(tried)
        return LoneGroup()

    assert ended(make, Assign(3, 0, 2, entry, store, previous=(0, 1))) == [True]
    assert asked == [tried]


def test_an_error_of_the_network_is_one_line(store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    error = RuntimeError(f"{REASON}\nand a trace")

    def fail(*_: object, tried: bool) -> Group:
        raise error

    ended(fail, Assign(3, 0, 2, "start", store))
    printed = capfd.readouterr().err
    assert printed == f"{building.not_built(3, error)}\n"
    assert " 3: " in printed and printed.endswith(f"{REASON}\n")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_survivor_that_cannot_get_ready_for_a_joining_worker_says_so(store: Store, server: TCPStore) -> None:
    server.set("tradewind/3/state/1", '["127.0.0.1", 1, "token"]')

    def fail(_joining: JoiningRank, _senders: int) -> None:
        raise MemoryError

    joined = Assign(3, 0, 2, "planned", store, previous=(0, -1))
    assert ended(lone_group, joined, fail) == [False]


def test_a_store_that_goes_with_the_last_connection_spoils_no_group(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = building._connect
    left = [1]

    def once(store: Store) -> TCPStore:
        if not left:
            raise RuntimeError("The client socket has failed to connect")
        left.pop()
        return connect(store)

    monkeypatch.setattr(building, "_connect", once)
    assert ended(lone_group, Assign(3, 0, 2, "start", store)) == [True]
