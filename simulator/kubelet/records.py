"""States of a pod's containers, and the pod's status derived from them."""

import signal
from dataclasses import dataclass, field, replace
from typing import assert_never

from simulator.kubernetes.objects import Obj, meta, spec_of, status_of, timestamp, with_condition

ALWAYS, ON_FAILURE = "Always", "OnFailure"
_SIGNALLED = 128


@dataclass(frozen=True, slots=True)
class Waiting:
    reason: str = "ContainerCreating"
    message: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    started_s: float


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    reason: str
    started_s: float
    finished_s: float
    message: str = ""


State = Waiting | Running | Ended


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    name: str
    image: str
    id: str
    is_init: bool = False
    state: State = field(default_factory=Waiting)
    last: Ended | None = None
    restarts: int = 0
    will_restart: bool = True
    """False after it has ended for good."""

    @property
    def succeeded(self) -> bool:
        return isinstance(self.state, Ended) and self.state.code == 0

    @property
    def is_over(self) -> bool:
        return isinstance(self.state, Ended) and not self.will_restart

    def ended(self, state: Ended, *, will_restart: bool) -> "ContainerRecord":
        return replace(self, state=state, will_restart=will_restart)

    def backing_off(self, reason: str, message: str) -> "ContainerRecord":
        last = self.state if isinstance(self.state, Ended) else self.last
        return replace(self, state=Waiting(reason, message), last=last)


@dataclass(frozen=True, slots=True)
class PodFacts:
    pod_ip: str
    host_ip: str
    started_s: float
    ended_reason: str = ""
    """Why the kubelet ended the pod, if it did."""
    ended_message: str = ""


def ended(returncode: int, started_s: float, finished_s: float) -> Ended:
    """The end of a process; if a signal ended it, its code is 128 plus the signal's number."""
    code = _SIGNALLED - returncode if returncode < 0 else returncode
    return Ended(code, "Completed" if code == 0 else "Error", started_s, finished_s)


def restarts(policy: str, code: int, *, is_init: bool) -> bool:
    if is_init:
        return code != 0 and policy in (ALWAYS, ON_FAILURE)
    return policy == ALWAYS or (policy == ON_FAILURE and code != 0)


def backoff_s(restarts_so_far: int, base_s: float, most_s: float) -> float:
    """Seconds before a restart: 0 for the first, then doubling."""
    if restarts_so_far == 0:
        return 0.0
    return float(min(most_s, base_s * 2.0 ** min(restarts_so_far - 1, 20)))


def pod_status(pod: Obj, records: list[ContainerRecord], facts: PodFacts, now: str) -> Obj:
    init = [record for record in records if record.is_init]
    main = [record for record in records if not record.is_init]
    phase = "Failed" if facts.ended_reason else _phase(init, main)
    ready = phase == "Running" and all(isinstance(record.state, Running) for record in main)
    finished = phase in ("Succeeded", "Failed")
    status = {
        **status_of(pod),
        "phase": phase,
        "hostIP": facts.host_ip,
        "hostIPs": [{"ip": facts.host_ip}],
        "podIP": facts.pod_ip,
        "podIPs": [{"ip": facts.pod_ip}],
        "startTime": timestamp(facts.started_s),
        "containerStatuses": [_container_status(record) for record in main],
        "observedGeneration": meta(pod).get("generation", 1),
    }
    if init:
        status["initContainerStatuses"] = [_container_status(record) for record in init]
    if facts.ended_reason:
        status |= {"reason": facts.ended_reason, "message": facts.ended_message}
    conditions = status_of(pod).get("conditions") or []
    why = {"reason": "PodCompleted" if phase == "Succeeded" else "PodFailed" if finished else "ContainersNotReady"}
    initialized = all(record.succeeded for record in init) or finished
    for kind, holds, reason in (
        ("PodReadyToStartContainers", not finished, {}),
        ("Initialized", initialized, {} if initialized else {"reason": "ContainersNotInitialized"}),
        ("Ready", ready, {} if ready else why),
        ("ContainersReady", ready, {} if ready else why),
        ("PodScheduled", True, {}),
    ):
        entry: Obj = {"type": kind, "status": "True" if holds else "False", "lastProbeTime": None, **reason}
        conditions = with_condition(conditions, entry, now)
    if facts.ended_reason:
        disrupted = {"type": "DisruptionTarget", "status": "True", "lastProbeTime": None}
        disrupted |= {"reason": "TerminationByKubelet", "message": facts.ended_message}
        conditions = with_condition(conditions, disrupted, now)
    return {**status, "conditions": conditions}


def new_records(pod: Obj) -> list[ContainerRecord]:
    spec, uid = spec_of(pod), meta(pod)["uid"]
    waiting = Waiting("PodInitializing") if spec.get("initContainers") else Waiting()
    return [
        *(
            ContainerRecord(each["name"], each["image"], f"{uid}/{each['name']}", is_init=True)
            for each in spec.get("initContainers") or []
        ),
        *(
            ContainerRecord(each["name"], each["image"], f"{uid}/{each['name']}", state=waiting)
            for each in spec.get("containers") or []
        ),
    ]


def _phase(init: list[ContainerRecord], main: list[ContainerRecord]) -> str:
    if any(record.is_over and not record.succeeded for record in init):
        return "Failed"
    if not all(record.succeeded for record in init):
        return "Pending"
    if all(record.is_over for record in main):
        return "Succeeded" if all(record.succeeded for record in main) else "Failed"
    never_ran = all(isinstance(record.state, Waiting) and record.last is None for record in main)
    return "Pending" if never_ran else "Running"


def _container_status(record: ContainerRecord) -> Obj:
    is_running = isinstance(record.state, Running)
    return {
        "name": record.name,
        "image": record.image,
        "imageID": f"simulated://{record.image}",
        "containerID": f"simulated://{record.id}/{record.restarts}",
        "ready": is_running if not record.is_init else record.succeeded,
        "started": is_running,
        "restartCount": record.restarts,
        "state": _state(record, record.state),
        "lastState": {} if record.last is None else _state(record, record.last),
    }


def _state(record: ContainerRecord, state: State) -> Obj:
    match state:
        case Waiting():
            return {"waiting": {"reason": state.reason, **({"message": state.message} if state.message else {})}}
        case Running():
            return {"running": {"startedAt": timestamp(state.started_s)}}
        case Ended():
            reported: Obj = {
                "exitCode": state.code,
                "reason": state.reason,
                "startedAt": timestamp(state.started_s),
                "finishedAt": timestamp(state.finished_s),
                "containerID": f"simulated://{record.id}/{record.restarts}",
            }
            if state.code > _SIGNALLED and state.code - _SIGNALLED in {each.value for each in signal.Signals}:
                reported["signal"] = state.code - _SIGNALLED
            return {"terminated": {**reported, **({"message": state.message} if state.message else {})}}
        case _:
            assert_never(state)
