"""Translation between the protocols of host and trainer and the types of the core and the bus."""

from typing import Protocol, TypeVar

import msgspec

from agents.worker.commands import Enter, Lease, Locate, Park, TrainerCommand
from agents.worker.effects import TellFact
from agents.worker.trainer import Birth
from messages.decoding import Undecodable, decode
from messages.ids import Generation, Rank
from messages.measured import StepsMeasured
from messages.workers import (
    SampleCertificate,
    TrainerExit,
    TrainerStatus,
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
from messages.worlds import StepsCounted
from tradewind.protocol import host, trainer

WAITS_LIMIT = 200
TERMS_LIMIT = 1000
CERTIFICATE_LIMIT = 500

T = TypeVar("T")

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


def order_of(command: TrainerCommand, address: str) -> trainer.Order:
    match command:
        case Enter():
            return _assign(command, address)
        case Park(generation):
            return trainer.Halt(generation)
        case Lease(valid_s):
            return trainer.Lease(valid_s)
        case Locate():
            return trainer.Locate()


class _OfTrainer(Protocol):
    @property
    def generation(self) -> int: ...
    @property
    def rank(self) -> int: ...


def birth_of(message: _OfTrainer) -> Birth:
    return Generation(message.generation), Rank(message.rank)


def status_of(said: trainer.Status, certificate: SampleCertificate | None) -> TrainerStatus:
    """Converts a status. The local rank is left at 0; the core fills it in."""
    return TrainerStatus(
        local_rank=0,
        rank=Rank(said.rank),
        generation=Generation(said.generation),
        parked=Generation(said.parked),
        done=said.done,
        held=said.held,
        active=said.active,
        finished=said.finished,
        broken=Generation(said.broken),
        waits=said.waits[:WAITS_LIMIT],
        resting=said.resting,
        terms=said.terms if len(said.terms) <= TERMS_LIMIT else "",
        certificate=certificate,
        waiting=said.waiting,
        overdue=said.overdue,
        step_s=said.step_s,
        paused=said.paused[:WAITS_LIMIT],
        paused_at=said.paused_at,
    )


def certificate_of(said: trainer.Status) -> SampleCertificate | None:
    """Returns the certificate; None if the trainer sent none. Raises `Undecodable` if it is invalid."""
    certificate = _converted(said.certificate, SampleCertificate)
    if certificate is None:
        return None
    return msgspec.structs.replace(certificate, message=certificate.message[:CERTIFICATE_LIMIT])


def measured_of(said: trainer.Progress) -> StepsMeasured | None:
    """Returns the measured times; None if the trainer measured nothing. Raises `Undecodable` if they are impossible."""
    return _converted(said.measured, StepsMeasured)


def counted_of(said: trainer.Progress) -> StepsCounted | None:
    return None if said.counted is None else StepsCounted(said.counted.nonfinite, said.counted.skipped)


def exit_of(exited: host.Exited) -> TrainerExit:
    return TrainerExit(
        rank=Rank(exited.rank),
        code=exited.code,
        signal=exited.signal,
        tail=() if exited.code == 0 else exited.tail,
        error=exited.error,
        peer_lost=exited.peer_lost,
        stalled=exited.stalled,
        hint=exited.hint,
    )


def fact_message(sent: TellFact) -> FactMessage:
    match sent:
        case TellFact(fact="joined"):
            return WorkerJoined(sent.status)
        case TellFact(fact="ready"):
            return WorkerReady(sent.status)
        case TellFact(fact="parking"):
            return WorkerParking(sent.status)
        case TellFact(fact="parked"):
            return WorkerParked(sent.status)
        case TellFact(fact="position"):
            return WorkerPosition(sent.status)
        case TellFact(fact="left"):
            return WorkerLeft(sent.status, sent.why, sent.is_unfit)
        case TellFact(fact="switched", step=int(step)):
            return WorkerSwitched(sent.status, step)
        case TellFact(fact="exited", exit=ended) if ended is not None:
            return WorkerExited(sent.status, ended)
        case TellFact(fact="peer_lost", exit=ended):
            return WorkerPeerLost(sent.status, ended)
        case _:
            raise ValueError(f"{sent.fact!r} is not a fact, or lacks its exit or step")


def _converted(value: object, wanted: type[T]) -> T | None:
    if value is None:
        return None
    try:
        content = msgspec.json.encode(value)
    except (ValueError, OverflowError, RecursionError) as error:
        raise Undecodable(str(error)) from error
    return decode(content, wanted)


def _assign(enter: Enter, address: str) -> trainer.Assign:
    world, live = enter.world, enter.world.live
    store = trainer.Store(world.store.host, world.store.port, world.store.prefix)
    if live is None:
        return trainer.Assign(world.generation, enter.rank, world.world_size, "start", store, address)
    return trainer.Assign(
        generation=world.generation,
        rank=enter.rank,
        world_size=world.world_size,
        entry=live.entry.value,
        store=store,
        address=address,
        leaves=enter.leaves,
        peers=tuple(dict.fromkeys(member.address for member in world.members)),
        previous=live.previous,
        resume=live.resume,
        source=live.source,
        laggards=live.laggards,
        held=live.held,
    )
