"""The claims about the cloud. Each is a function from the facts to the problems that contradict the claim."""

from collections.abc import Callable, Iterator

from tradewind.demo.cloud.facts import CloudFacts, How, Taken
from tradewind.demo.facts import Trained

LEDGER_TOLERANCE = 0.02
"""Allowed difference between ledger and bill. The ledger reads machines every second, so short runs differ more."""
CloudCheck = Callable[[CloudFacts, list[Trained]], Iterator[str]]


def made_through_the_api(cloud: CloudFacts, trained: list[Trained]) -> Iterator[str]:
    clusters, pools = cloud.calls.get("CreateCluster", 0), cloud.calls.get("CreateNodePool", 0)
    if clusters != cloud.clusters:
        yield f"{clusters} clusters were created through the cloud's API, not {cloud.clusters}"
    if not pools:
        yield "no pool was created through the cloud's API"


def noticed_handed_over(cloud: CloudFacts, trained: list[Trained]) -> Iterator[str]:
    noticed = [taken for taken in cloud.taken if taken.notice_s and taken.how is How.PREEMPTED]
    if not noticed:
        yield "no node was preempted with notice"
    yield from _handed_over(noticed, cloud, trained)


def upgraded_handed_over(cloud: CloudFacts, trained: list[Trained]) -> Iterator[str]:
    upgraded = [taken for taken in cloud.taken if taken.how is How.UPGRADED]
    if not upgraded:
        yield "no node was upgraded"
    yield from _handed_over(upgraded, cloud, trained)
    yield from _was_renewed(upgraded, cloud)


def hung_was_repaired(cloud: CloudFacts, trained: list[Trained]) -> Iterator[str]:
    hung = [taken for taken in cloud.taken if taken.how is How.HUNG]
    if not hung:
        yield "no node stopped reporting"
    yield from _was_renewed(hung, cloud)


def _was_renewed(nodes: list[Taken], cloud: CloudFacts) -> Iterator[str]:
    """Each node was re-created by the cloud before the master removed it."""
    for taken in nodes:
        if taken.renewed_at is None:
            yield f"node {taken.node} was not re-created"
            continue
        for removal in cloud.removals:
            if taken.at <= removal.at < taken.renewed_at and taken.node in removal.text:
                yield f"node {taken.node} was removed before the cloud re-created it: {removal.text}"


def _handed_over(nodes: list[Taken], cloud: CloudFacts, trained: list[Trained]) -> Iterator[str]:
    for taken in nodes:
        parting = cloud.partings.get(taken.worker) if taken.worker is not None else None
        if taken.worker is None:
            yield f"no worker got the notice of node {taken.node}"
        elif parting is None:
            yield f"the noticed worker {taken.worker} did not leave"
        elif not parting.released:
            yield f"the noticed worker {taken.worker} was not released: {parting.why}"
        elif parting.at >= taken.at + taken.notice_s:
            late_s = parting.at - taken.at - taken.notice_s
            yield f"the noticed worker {taken.worker} left {late_s:.1f} s after its node was preempted"
        for world in trained:
            if taken.worker in world.members and world.generation > taken.generation:
                yield f"the noticed worker {taken.worker} holds a rank in generation {world.generation}"


def only_silent_ones_are_losses(cloud: CloudFacts, trained: list[Trained]) -> Iterator[str]:
    silent = sum(not taken.notice_s for taken in cloud.taken)
    if not any(not taken.notice_s and taken.how is How.PREEMPTED for taken in cloud.taken):
        yield "no node was lost without notice"
    if cloud.losses != silent:
        yield f"{cloud.losses} losses were counted, but {silent} nodes were lost or hung without notice"


def came_from_elsewhere(cloud: CloudFacts, trained: list[Trained]) -> Iterator[str]:
    """After the first stockout, machines are requested in another region. Later stockouts may need no machines."""
    if not cloud.stockouts:
        yield "no zone was out of machines"
        return
    first = min(cloud.stockouts, key=lambda stockout: stockout.at)
    if not any(asked.region != first.region and asked.at >= first.at for asked in cloud.asked):
        yield f"{first.zone} had no machines, and none were requested in another region"


def spanned_two_regions(cloud: CloudFacts, trained: list[Trained]) -> Iterator[str]:
    if not any(len(regions_of(world, cloud)) > 1 for world in trained):
        yield "no world had workers in two regions"


def nothing_left_in_the_cloud(cloud: CloudFacts, trained: list[Trained]) -> Iterator[str]:
    if cloud.pools_left:
        yield f"{len(cloud.pools_left)} pools of the job were left: {', '.join(cloud.pools_left)}"
    if cloud.nodes_left:
        yield f"{len(cloud.nodes_left)} nodes of the job were left: {', '.join(cloud.nodes_left)}"


def was_decided_for_a_reason(cloud: CloudFacts, trained: list[Trained]) -> Iterator[str]:
    if not cloud.decisions:
        yield "there was no plan"
    yield from (f"{decision.text}: without a reason" for decision in cloud.decisions if not decision.why)


def ledger_agrees_with_the_bill(cloud: CloudFacts, trained: list[Trained]) -> Iterator[str]:
    if not cloud.bill_micro_usd:
        yield "the cloud has no bill for the job"
    elif cloud.cost is None:
        yield "the master has no cost of the job"
    elif abs(cloud.cost.nodes_micro_usd - cloud.bill_micro_usd) > LEDGER_TOLERANCE * cloud.bill_micro_usd:
        ours, theirs = cloud.cost.nodes_micro_usd / 1e6, cloud.bill_micro_usd / 1e6
        yield f"the ledger has {ours:.4f} USD for machines, the cloud's bill {theirs:.4f} USD: more than 2 % apart"


CLOUD_CLAIMS: dict[str, CloudCheck] = {
    "clusters and pools were created through the cloud's API": made_through_the_api,
    "the noticed worker handed over before its node was preempted": noticed_handed_over,
    "the upgraded node's worker handed over, and the node returned": upgraded_handed_over,
    "the node that hung was replaced, and the cloud repaired it": hung_was_repaired,
    "only nodes lost without notice count as losses": only_silent_ones_are_losses,
    "when a zone had no machines, they came from another region": came_from_elsewhere,
    "one world had workers in two regions": spanned_two_regions,
    "nothing of the job was left in the cloud": nothing_left_in_the_cloud,
    "the place of the job was planned, with a reason": was_decided_for_a_reason,
    "the ledger agrees with the cloud's bill within 2 %": ledger_agrees_with_the_bill,
}


def regions_of(world: Trained, cloud: CloudFacts) -> tuple[str, ...]:
    return tuple(sorted({cloud.regions[worker] for worker in world.members if worker in cloud.regions}))
