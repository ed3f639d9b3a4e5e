"""What a world sends from zone to zone in a step: an estimate, from the bytes of the gradients.

In the ring through all members, neighbours in rank, each link carries 2(n−1)/n of them (see docs/catalog.md).
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from controlplane.catalog.links import Links
from controlplane.ledger.events import Hop
from messages.worlds import Member


def hops_of(members: Sequence[Member], gradient_bytes: int, links: Links) -> tuple[Hop, ...]:
    """None without members in several zones."""
    zones = [member.zone for member in sorted(members, key=lambda member: member.first_rank)]
    if len(zones) < 2:
        return ()
    over_a_link = 2 * (len(zones) - 1) * gradient_bytes // len(zones)
    crossings = Counter(pair for pair in pairwise((*zones, zones[0])) if pair[0] != pair[1] and all(pair))
    return tuple(
        Hop(sender, receiver, count * over_a_link, links.between(sender, receiver).egress_micro_usd_per_gib)
        for (sender, receiver), count in sorted(crossings.items())
        if over_a_link
    )
