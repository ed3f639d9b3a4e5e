"""Facts of the core as messages of the bus."""

from agents.worker.effects import TellFact
from messages.workers import (
    WorkerExited,
    WorkerJoined,
    WorkerLeft,
    WorkerParked,
    WorkerParking,
    WorkerPeerLost,
    WorkerPosition,
    WorkerReady,
    WorkerSwitched,
)

FactMessage = (
    WorkerJoined
    | WorkerReady
    | WorkerParking
    | WorkerParked
    | WorkerPosition
    | WorkerSwitched
    | WorkerExited
    | WorkerPeerLost
    | WorkerLeft
)


def fact_message(told: TellFact) -> FactMessage:
    match told:
        case TellFact(fact="joined"):
            return WorkerJoined(told.status)
        case TellFact(fact="ready"):
            return WorkerReady(told.status)
        case TellFact(fact="parking"):
            return WorkerParking(told.status)
        case TellFact(fact="parked"):
            return WorkerParked(told.status)
        case TellFact(fact="position"):
            return WorkerPosition(told.status)
        case TellFact(fact="left"):
            return WorkerLeft(told.status, told.why, told.is_unfit)
        case TellFact(fact="switched", step=int(step)):
            return WorkerSwitched(told.status, step)
        case TellFact(fact="exited", exit=ended) if ended is not None:
            return WorkerExited(told.status, ended)
        case TellFact(fact="peer_lost", exit=ended):
            return WorkerPeerLost(told.status, ended)
        case _:
            raise ValueError(f"{told.fact!r} is not a fact, or lacks what it is about")
