"""The event of a cluster that cannot be set up."""

from controlplane.bootstrap.settings import Place
from controlplane.capacity.clusters import event_of
from controlplane.clouds.outcomes import Done, Refused, reason_of
from messages.events import FLEET, Event
from messages.ids import ClusterName

PLACE = Place(ClusterName("us"), "us-central1")


def test_a_cluster_that_refuses_what_it_needs_is_told_of_with_what_to_do() -> None:
    refused = Refused("roles cannot be made.", "let that account administer the cluster")
    reported = event_of(PLACE, refused)
    assert reported is not None
    assert reported == Event(FLEET, "cluster_waits", reported.text, reason_of(refused), {"cluster": "us"})
    assert "cluster us" in reported.text


def test_a_cluster_that_has_what_it_needs_is_no_news() -> None:
    assert event_of(PLACE, Done()) is None
