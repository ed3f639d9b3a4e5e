"""Listings come in pages: a job of thousands of workers is answered as quickly as a small one."""

import math

from msgspec.structs import replace

from controlplane.api.views import WORKERS_SHOWN, job_view, worker_page
from controlplane.job.state import Job, new_job
from controlplane.job.workers import Worker, Workers
from controlplane.jobs.progress import ProgressTracker
from messages.ids import ClusterName, Epoch, WorkerId
from tests.specs import a_spec

WORKERS = 1_203


def test_the_view_of_a_large_job_has_its_first_workers_and_says_how_many_there_are() -> None:
    view = job_view(a_job(), ProgressTracker(), 0.0)
    assert (len(view.workers), view.workers_total) == (WORKERS_SHOWN, WORKERS)
    assert [worker.worker for worker in view.workers[:2]] == ["w-00000", "w-00001"]


def test_pages_show_every_worker_once() -> None:
    job, seen, pages = a_job(), list[str](), 0
    first: int | None = 0
    while first is not None:
        page = worker_page(job, ProgressTracker(), 0.0, first, 500)
        seen += [worker.worker for worker in page.workers]
        first, pages = page.next, pages + 1
    assert pages == math.ceil(WORKERS / 500)
    assert seen == sorted(job.workers)


def a_job() -> Job:
    job = new_job(a_spec("demo"), epoch=Epoch(1), at_s=0.0, submitted_at=0.0)
    names = [WorkerId(f"w-{number:05}") for number in range(WORKERS)]
    return replace(job, workers=Workers(Worker(name, ClusterName("local"), 0.0, 0.0) for name in names))
