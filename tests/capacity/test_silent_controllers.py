"""A controller that cannot start: its cluster is blocked until it is heard, and one event is announced."""

import pytest

from controlplane.capacity.silence_policy import controller_failed
from controlplane.capacity.silent_controllers import SilentControllers
from controlplane.capacity.start_policy import explain
from messages.clusters import StartFailure
from messages.events import Event
from messages.ids import ClusterName
from tests.capacity.builders import US

IMAGE = "us-docker.pkg.dev/acme/images/tradewind:1"
DENIED = StartFailure("ImagePullBackOff", "403 Forbidden", IMAGE, "system-1")


class Bench:
    """A clock that only sleeps advance, and a controller that is heard after some time or never."""

    def __init__(self, failure: StartFailure | None, heard_at_s: float) -> None:
        self.now_s = 100.0
        self.failure = failure
        self.unanswered = 0
        """The number of looks that get no answer after the cluster was blocked."""
        self.heard_at_s = 100.0 + heard_at_s
        self.blocked: list[tuple[float, str, str]] = []
        self.reported: list[Event] = []
        self.looker = SilentControllers(
            self._failure_of, self._block, self.reported.append, self._heard_s, lambda image: f"grant {image}", self
        )

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    async def _failure_of(self, cluster: ClusterName) -> StartFailure | None:
        if self.blocked and self.unanswered:
            self.unanswered -= 1
            return None
        return self.failure

    def _block(self, cluster: ClusterName, detail: str, hint: str) -> None:
        self.blocked.append((self.now_s - 100.0, detail, hint))

    def _heard_s(self, cluster: ClusterName) -> float | None:
        return self.now_s if self.now_s >= self.heard_at_s else None


async def a_bench_that_waited(
    patch: pytest.MonkeyPatch, failure: StartFailure | None, heard_at_s: float, *, unanswered: int = 0
) -> Bench:
    bench = Bench(failure, heard_at_s)
    bench.unanswered = unanswered
    patch.setattr("controlplane.capacity.silent_controllers.asyncio.sleep", bench.sleep)
    await bench.looker.wait_while_failing(US)
    return bench


async def test_a_controller_whose_image_is_denied_closes_its_cluster_until_it_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = await a_bench_that_waited(monkeypatch, DENIED, heard_at_s=200.0)
    first_s, detail, hint = bench.blocked[0]
    assert first_s < 30.0
    assert detail == controller_failed(explain(DENIED, str)[0])
    assert hint == f"grant {IMAGE}"
    assert len(bench.blocked) > 3
    assert [event.kind for event in bench.reported] == ["controller_failed"]


async def test_a_short_outage_of_the_registry_closes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    outage = StartFailure("ErrImagePull", "503 Service Unavailable", IMAGE)
    bench = await a_bench_that_waited(monkeypatch, outage, heard_at_s=60.0)
    assert (bench.blocked, bench.reported) == ([], [])


async def test_a_controller_that_is_silent_for_another_reason_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = await a_bench_that_waited(monkeypatch, None, heard_at_s=1000.0)
    assert (bench.blocked, bench.now_s) == ([], 100.0)


@pytest.mark.parametrize(("unanswered", "waits_on"), [(2, True), (3, False)])
async def test_a_failure_is_over_when_several_looks_in_a_row_find_nothing(
    unanswered: int, waits_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await a_bench_that_waited(monkeypatch, DENIED, heard_at_s=400.0, unanswered=unanswered)
    assert (bench.now_s >= bench.heard_at_s) is waits_on
