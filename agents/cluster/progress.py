"""Gathers the progress reports of workers, so that a master gets few messages from each cluster."""

from collections.abc import Iterator

from messages.ids import ClusterName, JobName
from messages.worlds import GatheredProgress, Progress

GATHER_S = 0.2
"""Seconds between two messages to the master."""
RANKS_AT_MOST = 1000
"""Ranks in one message: about 300 kB."""
REPORTS_AT_MOST = 100_000
"""Reports that wait for the next message; the gatherer drops further ones."""


class ProgressGatherer:
    def __init__(self, cluster: ClusterName) -> None:
        self._cluster = cluster
        self._waiting: dict[JobName, list[Progress]] = {}
        self._count = 0

    def add(self, report: Progress) -> bool:
        """Adds a report. Returns False if too many reports wait already."""
        if self._count >= REPORTS_AT_MOST:
            return False
        self._waiting.setdefault(report.job, []).append(report)
        self._count += 1
        return True

    def take(self) -> Iterator[GatheredProgress]:
        """Yields the reports since the last call, in at least one message for each job."""
        waiting, self._waiting, self._count = self._waiting, {}, 0
        for job, reports in waiting.items():
            for part in _parts(reports):
                yield GatheredProgress(job, self._cluster, tuple(part))


def _parts(reports: list[Progress]) -> Iterator[list[Progress]]:
    part: list[Progress] = []
    ranks = 0
    for report in reports:
        if part and ranks + len(report.ranks) > RANKS_AT_MOST:
            yield part
            part, ranks = [], 0
        part.append(report)
        ranks += len(report.ranks)
    yield part
