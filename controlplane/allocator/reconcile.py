"""Second half of a decision: compare the wanted targets with the pools' targets, and request the difference.

Pools are lowered before any pool is raised. No raise exceeds the wanted nodes or the caps, which count operations in
progress. So a wave of losses, a late answer or a restart cannot leave too many nodes.
"""

from dataclasses import replace

from controlplane.allocator import effects
from controlplane.allocator.caps import most_for
from controlplane.allocator.counting import (
    ceiling,
    dismissed,
    expected,
    held,
    is_ours,
    is_settled,
    is_there,
    lost,
    noticed,
    sidelined,
    spare,
    total,
)
from controlplane.allocator.explanations import explain_idleness, explain_lowering, explain_raising, summary
from controlplane.allocator.facts import basis_of, current_plan, note, plan_due_s
from controlplane.allocator.idle import idle_cap, idle_nodes
from controlplane.allocator.offers import Offer, pool_plan, pool_ref
from controlplane.allocator.prospects import Supplies, supplies_of
from controlplane.allocator.state import Allocator, Kind, Operation, Pool
from controlplane.allocator.targets import targets_of
from controlplane.allocator.timing import next_listing, quiet_from_s, wake_at_s
from controlplane.allocator.use import dismiss_one, dismissed_and_left


class Turn:
    """One reconciliation: the allocator as it changes, and the effects so far."""

    def __init__(self, allocator: Allocator, now_s: float) -> None:
        self.allocator = allocator
        self.now_s = now_s
        self.effects: list[effects.AllocatorEffect] = []

    def reconcile(self) -> None:
        allocator = self.allocator
        if allocator.finished:
            return
        if allocator.synced and allocator.ended is not None:
            self._delete_all(allocator.ended)
        elif allocator.synced:
            self.allocator = dismiss_one(self.allocator, self.now_s)
            self._remove_idle()
            self._set_targets()
            self._delete_unwanted()
            self._delete_useless()
            self._ask_for_a_plan()
        self._list()
        self.allocator = replace(self.allocator, why=summary(self.allocator, self.now_s))

    @property
    def wake_at_s(self) -> float | None:
        return wake_at_s(self.allocator, self.now_s)

    # Targets

    def _set_targets(self) -> None:
        supplies = supplies_of(self.allocator, self.now_s)
        self._note(supplies)
        plan = current_plan(self.allocator.plans)
        if plan is not None:
            reported = replace(self.allocator.plans, reported=(plan.placement, plan.change))
            self.allocator = replace(self.allocator, plans=reported)
        targets = targets_of(self.allocator, supplies, self.now_s)
        if (targets.by, targets.leaving) != (self.allocator.by, self.allocator.leaving):
            self.allocator = replace(self.allocator, by=targets.by, leaving=targets.leaving)
        for offer, target in targets.targets.items():
            self._lower(self._pool(offer), target)
        for offer, target in targets.targets.items():
            self._raise(self._pool(offer), target)
        if self.effects:
            self._note(supplies_of(self.allocator, self.now_s))

    def _note(self, supplies: Supplies) -> None:
        if self.allocator.demand is not None:
            basis = basis_of(self.allocator, supplies, self.now_s)
            plans = note(self.allocator.plans, basis, self.now_s, self.allocator.settings.plan_settle_s)
            self.allocator = replace(self.allocator, plans=plans)

    def _ask_for_a_plan(self) -> None:
        """Request a plan from the facts after this turn's requests."""
        plans, due_s = self.allocator.plans, plan_due_s(self.allocator)
        if plans.facts is None or due_s is None or self.now_s < due_s:
            return
        asked, number = plans.facts, plans.number + 1
        self.allocator = replace(self.allocator, plans=replace(plans, number=number, asked_s=self.now_s, asked=asked))
        self.effects.append(effects.MakePlan(number, asked.criteria, asked.profile, asked.market, asked.current))

    # Shrinking

    def _remove_idle(self) -> None:
        for ref, names in idle_nodes(self.allocator, self.now_s).items():
            pool = self.allocator.pools[ref]
            if self._may_touch(pool):
                most = min(ceiling(self.allocator), total(self.allocator.pools.values()))
                self._remove(pool, names, explain_idleness(self.allocator, names))
                cap = idle_cap(self.allocator, max(0, most - len(names)), self.now_s)
                self.allocator = replace(self.allocator, idle_cap=cap)
        for ref, nodes in dismissed_and_left(self.allocator).items():
            pool = self.allocator.pools[ref]
            if self._may_touch(pool):
                self._remove(pool, [node.name for node in nodes], "; ".join(node.dismissed for node in nodes))

    def _lower(self, pool: Pool, target: int) -> None:
        if not pool.exists or not self._may_touch(pool):
            return
        excess = max(0, pool.target - target - noticed(pool) - sidelined(pool) - dismissed(pool))
        knows = self._knows_what_is_empty(pool)
        taken = [*(sorted(pool.vacant) if knows else ()), *(node.name for node in lost(pool))]
        empty = pool.target - len(pool.nodes)
        if excess > 0 and taken:
            self._remove(pool, taken[:excess])
        elif excess > 0 and empty > 0 and knows:
            self._shed(pool, min(excess, empty))
        else:
            unused = spare(self.allocator, pool)[: max(0, held(pool) - target)]
            self._remove(pool, [node.name for node in unused[:excess]] or self._lost_long_ago(pool))

    def _remove(self, pool: Pool, names: list[str], why: str = "") -> None:
        """Remove nodes by name, lost ones too: if the cloud refilled a slot, a resize would let it choose the node."""
        if not names:
            return
        why = why or explain_lowering(self.allocator, pool, self.now_s)
        vacant = frozenset(names) & pool.vacant.keys()
        operation = self._begin(pool, Kind.REMOVE, pool.target - len(names), nodes=frozenset(names), vacant=vacant)
        self.effects.append(effects.RemoveNodes(operation, pool.ref, tuple(sorted(names)), why))

    def _shed(self, pool: Pool, slots: int) -> None:
        """Remove slots that never had a node; the cloud loses no node, whatever it chooses."""
        why = explain_lowering(self.allocator, pool, self.now_s)
        size = pool.target - slots
        operation = self._begin(pool, Kind.RESIZE, size)
        self.effects.append(effects.ResizePool(operation, pool.ref, size, why))

    def _knows_what_is_empty(self, pool: Pool) -> bool:
        seen_s, filled_s, fresh_s = pool.sighted_s, pool.filled_s, self.allocator.settings.fresh_s
        if filled_s is not None and self.now_s - filled_s <= fresh_s and (seen_s is None or seen_s < filled_s):
            return False
        return self.now_s - seen_s <= fresh_s if seen_s is not None else not pool.adopted

    def _lost_long_ago(self, pool: Pool) -> list[str]:
        long_ago_s = self.now_s - self.allocator.settings.linger_s
        return [node.name for node in lost(pool) if node.lost_s is not None and node.lost_s <= long_ago_s]

    # Growing

    def _raise(self, pool: Pool, target: int) -> None:
        was_found = pool.offer.pool is not None
        # The extra nodes of an upgrade are held beyond the target: they are no reason to raise the pool.
        aside = sidelined(pool)
        enough = expected(pool) if aside else held(pool)
        has_enough = target + aside <= pool.target or target <= enough
        if has_enough or was_found or pool.broken or not self._may_touch(pool):
            return
        size = most_for(self.allocator, pool, target)
        if size <= pool.target:
            return
        why = explain_raising(self.allocator, pool, size - pool.target, self.now_s)
        kind = Kind.RESIZE if pool.exists else Kind.CREATE
        operation = self._begin(pool, kind, size, vacant=frozenset(pool.vacant))
        if kind is Kind.RESIZE:
            self.effects.append(effects.ResizePool(operation, pool.ref, size, why))
        else:
            made = pool_plan(self.allocator.job, pool.offer, size)
            self.effects.append(effects.CreatePool(operation, pool.ref.cluster, made, why))

    # Deleting

    def _delete_all(self, why: str) -> None:
        for pool in self.allocator.pools.values():
            if pool.exists and self._may_delete(pool):
                self._delete(pool, f"the job has ended: {why}")
        if not any(is_there(pool) for pool in self.allocator.pools.values()) and self._has_been_quiet():
            self.allocator = replace(self.allocator, finished=True)

    def _delete_unwanted(self) -> None:
        since_s, release_s = self.allocator.unwanted_since_s, self.allocator.settings.release_s
        if since_s is None or self.now_s < since_s + release_s:
            return
        for pool in self.allocator.pools.values():
            if pool.exists and (pool.target or pool.nodes) and self._may_delete(pool):
                self._delete(pool, f"no nodes are wanted, and the job did not release them within {release_s:g} s")

    def _delete_useless(self) -> None:
        """Delete empty pools that will not be raised again."""
        for pool in self.allocator.pools.values():
            useless = pool.broken or (pool.offer.pool is not None and pool.target == 0)
            if pool.exists and useless and not pool.nodes and self._may_touch(pool):
                why = "the cloud reports an error for it" if pool.broken else "it is empty and no longer offered"
                self._delete(pool, why)

    def _delete(self, pool: Pool, why: str) -> None:
        operation = self._begin(pool, Kind.DELETE, 0)
        self.effects.append(effects.DeletePool(operation, pool.ref, why))

    def _has_been_quiet(self) -> bool:
        """Report whether the quiet time is over: a request of a dead master may arrive after an empty listing."""
        learned_s = self.allocator.listing.learned_s
        return learned_s is not None and learned_s >= quiet_from_s(self.allocator)

    # Listing

    def _list(self) -> None:
        allocator, listing = self.allocator, self.allocator.listing
        due = next_listing(allocator)
        if due is None or self.now_s < due[0]:
            return
        number = listing.number + 1
        self.allocator = replace(allocator, listing=replace(listing, number=number, asked_s=self.now_s))
        self.effects.append(effects.ListPools(number, due[1]))

    # Helpers

    def _pool(self, offer: Offer) -> Pool:
        ref = pool_ref(self.allocator.job, offer)
        return self.allocator.pools.get(ref) or Pool(ref, offer)

    def _may_touch(self, pool: Pool) -> bool:
        return is_settled(pool) and (pool.retry_s is None or self.now_s >= pool.retry_s)

    def _may_delete(self, pool: Pool) -> bool:
        """Report whether the pool can be deleted: during an upgrade too; the cloud refuses if that is in the way."""
        return is_ours(pool) and (pool.retry_s is None or self.now_s >= pool.retry_s)

    def _begin(
        self,
        pool: Pool,
        kind: Kind,
        target: int,
        *,
        nodes: frozenset[str] = frozenset(),
        vacant: frozenset[str] = frozenset(),
    ) -> int:
        number = self.allocator.operations + 1
        operation = Operation(number, kind, pool.target, target, self.now_s, nodes, vacant)
        begun = replace(pool, operation=operation, touched=self.allocator.listing.number, retry_s=None)
        begun = without_slotless(begun) if operation.raises else begun
        self.allocator = replace(self.allocator, operations=number, pools={**self.allocator.pools, pool.ref: begun})
        return number


def without_slotless(pool: Pool) -> Pool:
    """Forget lost nodes beyond the target: they have no slot, so they take nothing from what a raise may bring."""
    surplus = max(0, len(pool.nodes) - pool.target)
    named = [node for node in lost(pool) if node.uid]
    slotless = sorted(named, key=lambda node: node.lost_s or 0.0)[:surplus]
    if not slotless:
        return pool
    names = {node.name for node in slotless}
    return replace(
        pool,
        nodes={name: node for name, node in pool.nodes.items() if name not in names},
        written_off=pool.written_off - names,
        removed=pool.removed | {(node.name, node.uid) for node in slotless},
    )
