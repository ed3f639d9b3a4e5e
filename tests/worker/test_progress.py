"""Reports of steps, gathered into one message."""

from agents.worker.progress import ProgressBook
from messages.ids import Generation, Rank
from messages.measured import StepsMeasured
from messages.worlds import Progress, RankProgress, StepsCounted
from tests.worker.builders import JOB, OWN
from tradewind.protocol.steps import StepReport


def test_reports_of_a_rank_become_one_range_with_the_newest_loss_and_all_samples() -> None:
    book = ProgressBook(JOB, OWN)
    book.add(Generation(1), Rank(0), [StepReport(7, 0.9, 4, 10.0), StepReport(8, 0.8, 4, 10.5)])
    book.add(Generation(1), Rank(0), [StepReport(9, None, 2, 11.0)])
    assert book.take() == [
        Progress(JOB, OWN, Generation(1), (RankProgress(Rank(0), 7, 9, 0.8, 10, 10.0, 11.0),)),
    ]


def test_a_loss_that_is_not_finite_takes_the_place_of_an_older_one_until_the_next() -> None:
    book = ProgressBook(JOB, OWN)
    counted = StepsCounted(nonfinite=1, skipped=1)
    book.add(Generation(1), Rank(0), [StepReport(7, 0.9), StepReport(8, nonfinite=True)], counted=counted)
    book.add(Generation(1), Rank(0), [StepReport(9)])
    (sent,) = book.take()[0].ranks
    assert (sent.last_step, sent.loss, sent.nonfinite, sent.counted) == (9, None, True, counted)
    book.add(Generation(1), Rank(0), [StepReport(10, nonfinite=True), StepReport(11, 0.8)])
    (sent,) = book.take()[0].ranks
    assert (sent.loss, sent.nonfinite) == (0.8, False)


def test_a_report_is_sent_once() -> None:
    book = ProgressBook(JOB, OWN)
    book.add(Generation(1), Rank(0), [StepReport(1)])
    assert len(book.take()) == 1
    assert book.take() == []


def test_generations_do_not_mix_and_ranks_stand_in_order() -> None:
    book = ProgressBook(JOB, OWN)
    book.add(Generation(2), Rank(1), [StepReport(5)])
    book.add(Generation(1), Rank(0), [StepReport(9)])
    book.add(Generation(2), Rank(0), [StepReport(5)])
    sent = [(progress.generation, [rank.rank for rank in progress.ranks]) for progress in book.take()]
    assert sent == [(1, [0]), (2, [0, 1])]


def test_the_newest_of_what_a_rank_measured_is_told() -> None:
    book = ProgressBook(JOB, OWN)
    older, newer = StepsMeasured(1, 8, 0.5, 0.3, 0.1, 400, 16), StepsMeasured(3, 8, 0.6, 0.4, 0.1, 400, 16)
    book.add(Generation(1), Rank(0), [StepReport(7)], older)
    book.add(Generation(1), Rank(0), [StepReport(8), StepReport(9)], newer)
    book.add(Generation(1), Rank(0), [StepReport(10)])
    assert [rank.measured for progress in book.take() for rank in progress.ranks] == [newer]
    book.add(Generation(1), Rank(0), [StepReport(11)])
    assert [rank.measured for progress in book.take() for rank in progress.ranks] == [None]
