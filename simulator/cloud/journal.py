"""The log of the cloud: requests, results of operations, nodes that came and went."""

from collections.abc import Sequence
from typing import assert_never

from runtime.decision import Decision
from runtime.logs import logger
from simulator.cloud.model.effects import (
    AnnounceMaintenance,
    Answer,
    DrainNode,
    DropCluster,
    Effect,
    HostCluster,
    PlaceNode,
    RegionRequest,
    RemoveNode,
    SilenceNode,
    WarnNode,
)
from simulator.cloud.model.events import Asked, Event
from simulator.cloud.model.names import OperationName
from simulator.cloud.model.refusals import Refusal
from simulator.cloud.model.requests import Outcome, Request, Started
from simulator.cloud.model.state import Cloud


class Journal:
    """Logs every decision of the core."""

    def __init__(self) -> None:
        self._under_way: set[OperationName] = set()
        self._log = logger()

    def __call__(self, events: Sequence[Event], decision: Decision[Cloud, Effect]) -> None:
        [event] = events
        for effect in decision.effects:
            if isinstance(effect, Answer):
                if isinstance(event, Asked):
                    self._asked(event.request, effect.outcome)
            else:
                self._reported(effect.request)
        for name in [*self._under_way]:
            self._maybe_ended(name, decision.state)

    def _asked(self, request: Request, outcome: Outcome) -> None:
        kind = type(request).__name__
        if isinstance(outcome, Refusal):
            self._log.info("refused", what=kind, code=outcome.code.value, why=outcome.message)
        elif isinstance(outcome, Started):
            self._under_way.add(outcome.operation)
            self._log.info("operation_started", what=kind, operation=outcome.operation)
        else:
            self._log.info("ordered", what=kind)

    def _reported(self, request: RegionRequest) -> None:
        match request:
            case WarnNode():
                self._log.info("node_preempted", node=request.node, notice_s=round(request.notice_s, 3))
            case PlaceNode():
                self._log.info("node_placed", node=request.node, zone=request.zone, instance=request.instance)
            case DrainNode():
                return  # repeated until the node is drained
            case AnnounceMaintenance():
                self._log.info("maintenance_announced", node=request.node)
            case SilenceNode():
                self._log.info("node_silenced", node=request.node, silent=request.silent)
            case RemoveNode():
                self._log.info("node_removed", node=request.node)
            case HostCluster():
                self._log.info("cluster_hosted", cluster=request.name_in_region, region=request.region)
            case DropCluster():
                self._log.info("cluster_dropped", cluster=request.name_in_region, region=request.region)
            case _:
                assert_never(request)

    def _maybe_ended(self, name: OperationName, cloud: Cloud) -> None:
        operation = cloud.operations.get(name)
        if operation is not None and not operation.is_done:
            return
        self._under_way.discard(name)
        if operation is not None:
            failed = operation.failed.message if operation.failed else ""
            self._log.info("operation_ended", operation=name, kind=operation.kind.value, failed=failed)
