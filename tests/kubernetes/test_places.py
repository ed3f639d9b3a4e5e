"""What is remembered of places that were to be ended: until they have, and no longer."""

from agents.cluster.events import ClusterEvent, PlaceEnded
from agents.cluster.kubernetes.client import KubernetesApi, NotFound
from agents.cluster.kubernetes.places import PodPlaces
from runtime.clock import SystemClock
from tests.kubernetes.test_pods import a_plan


class WithoutPods(KubernetesApi):
    def __init__(self) -> None:
        super().__init__(api=None)

    async def delete(self, path: str, *, grace_s: int | None = None, uid: str = "") -> bytes:
        raise NotFound(404, "NotFound", f"{path} is not there")


async def test_a_place_whose_pod_is_not_there_has_ended_and_is_forgotten() -> None:
    told: list[ClusterEvent] = []
    places = PodPlaces(WithoutPods(), a_plan(), told.append, SystemClock(), hostless_s=60.0)
    for number in range(3):
        await places.end(f"w{number}x1", grace_s=5.0)
    assert [event.uid for event in told if isinstance(event, PlaceEnded)] == ["w0x1", "w1x1", "w2x1"]
    assert places.to_end == frozenset()
