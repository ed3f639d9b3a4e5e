"""The certificate of a finished trainer: the SDK sends it, the agent reads it, and the bus transports it."""

from agents.worker.translation import CERTIFICATE_LIMIT, certificate_of, status_of
from messages import codec
from messages.workers import SampleCertificate, TrainerStatus, WorkerLeft, WorkerPhase, WorkerStatus
from tests.worker.builders import JOB, LOCAL, OWN
from tradewind.protocol import trainer as protocol
from tradewind.sdk.certificate import Certificate, Digest


def a_certificate() -> Certificate:
    certificate = Certificate()
    for step in range(3):
        read = Digest.of(range(step * 4, step * 4 + 4))
        certificate.check(step, read, read)
    return certificate


def as_the_agent_reads_it(status: protocol.Status) -> TrainerStatus:
    said = protocol.decode_message(protocol.encode_message(status))
    assert isinstance(said, protocol.Status)
    return status_of(said, certificate_of(said))


def test_it_comes_with_the_end_and_reaches_the_bus_whole() -> None:
    trainer = as_the_agent_reads_it(protocol.Status(finished=True, certificate=a_certificate().reported()))
    expected = SampleCertificate(3, 12, message="3 steps, 12 samples: 0 lost, 0 repeated")
    assert trainer.certificate == expected and expected.holds
    status = WorkerStatus(OWN, LOCAL, JOB, 1, WorkerPhase.ENDED, trainers=(trainer,))
    read = codec.decode(codec.encode(codec.wrap(WorkerLeft(status, "done"), sender="worker")))
    assert isinstance(read, codec.Received) and isinstance(read.message, WorkerLeft)
    assert read.message.status.trainers[0].certificate == expected


def test_who_has_not_finished_says_nothing_of_it() -> None:
    assert as_the_agent_reads_it(protocol.Status(done=2)).certificate is None


def test_its_words_are_bounded() -> None:
    sent = {**a_certificate().reported(), "message": "x" * 10_000}
    trainer = as_the_agent_reads_it(protocol.Status(finished=True, certificate=sent))
    assert trainer.certificate is not None and len(trainer.certificate.message) == CERTIFICATE_LIMIT
