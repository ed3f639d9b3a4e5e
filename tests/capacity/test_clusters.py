"""What people are told of a cluster that cannot be set up."""

from controlplane.bootstrap.settings import Place
from controlplane.capacity.clusters import event_of
from controlplane.clouds.outcomes import Done, Refused
from messages.events import FLEET, Event
from messages.ids import ClusterName

PLACE = Place(ClusterName("us"), "us-central1")


def test_a_cluster_that_refuses_what_it_needs_is_told_of_with_what_to_do() -> None:
    told = event_of(PLACE, Refused("roles cannot be made.", "let that account administer the cluster"))
    why = "roles cannot be made; try: let that account administer the cluster"
    assert told == Event(FLEET, "cluster_waits", "cluster us is not set up yet", why, {"cluster": "us"})


def test_a_cluster_that_has_what_it_needs_is_no_news() -> None:
    assert event_of(PLACE, Done()) is None
