"""Places that are to end and have no pod."""

from agents.cluster.events import ClusterEvent, PlaceEnded
from agents.cluster.kubernetes.places import PodPlaces
from runtime.clock import SystemClock
from runtime.kubernetes.client import KubernetesApi, NotFound
from tests.kubernetes.test_pods import a_plan


class WithoutPods(KubernetesApi):
    def __init__(self) -> None:
        super().__init__(api=None)

    async def delete(self, path: str, *, grace_s: int | None = None, uid: str = "") -> bytes:
        raise NotFound(404, "NotFound", f"{path} is not there")


async def test_a_place_whose_pod_is_not_there_has_ended_which_is_told_once() -> None:
    told: list[ClusterEvent] = []
    places = PodPlaces(WithoutPods(), a_plan(), told.append, SystemClock(), hostless_s=60.0)
    for uid in ("w0x1", "w1x1", "w0x1"):
        await places.end(uid, grace_s=5.0)
    assert [event.uid for event in told if isinstance(event, PlaceEnded)] == ["w0x1", "w1x1"]
    assert "w0x1" not in places
