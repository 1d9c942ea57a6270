"""Seconds of the critical path in attempts that failed, were lost, or repeat lost work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dask_strata.analysis.critical_path.walk import Segment
    from dask_strata.analysis.diagnosis.samples import Runner
    from dask_strata.run import Run


class Fates:
    """How the attempts on a critical path ended.

    Parameters
    ----------
    run : Run
        The run.
    segments : tuple of Segment
        Its critical path.
    runners : mapping of int to Runner
        The execution that each segment waited for, by the index of the segment.
    """

    def __init__(
        self, run: Run, segments: tuple[Segment, ...], runners: Mapping[int, Runner]
    ) -> None:
        self.run, self.segments, self.runners = run, segments, runners

    @cached_property
    def _fates(self) -> dict[int, dict[str, Any]]:
        """How attempts on the path ended, and whether their task had had a result before."""
        numbers = sorted(
            {s.attempt for s in self.segments if s.attempt is not None}
            | {runner.attempt for runner in self.runners.values()}
        )
        rows = self.run.rows(
            """
            select a.attempt, a.outcome, a.worker,
                   exists (from _renewals r where r._key = a._key
                           and epoch_ns(r.time) <= epoch_ns(a.start)) as renewed,
                   exists (from attempts b where b._key = a._key and b.outcome = 'lost'
                           and b.compute_seconds is not null
                           and epoch_ns(b.start) < epoch_ns(a.start)) as after_loss
            from attempts a where a.attempt in (select unnest($1::bigint[]))
            """,
            numbers,
        )
        return {row["attempt"]: row for row in rows}

    def _of_attempts(self, chosen: Callable[[dict[str, Any]], bool]) -> dict[int, float]:
        claims = {}
        for index, segment in enumerate(self.segments):
            runner = self.runners.get(index)
            number = runner.attempt if runner is not None else segment.attempt
            row = None if number is None else self._fates.get(number)
            if row is not None and chosen(row):
                claims[index] = segment.seconds
        return claims

    @cached_property
    def retried(self) -> dict[int, float]:
        """Seconds of attempts that failed and were tried again, by segment."""
        return self._of_attempts(lambda row: row["outcome"] == "retried")

    @cached_property
    def repeated(self) -> dict[int, float]:
        """Seconds of attempts that were lost, and of those that repeat lost work, by segment."""
        claims = self._of_attempts(
            lambda row: row["outcome"] == "lost" or row["renewed"] or row["after_loss"]
        )
        return claims | {
            i: s.seconds for i, s in enumerate(self.segments) if s.cause == "silent worker"
        }

    def lost_on(self, workers: set[str]) -> dict[int, float]:
        """Return the seconds of attempts that were lost with some workers, by segment."""
        return self._of_attempts(lambda row: row["outcome"] == "lost" and row["worker"] in workers)

    @cached_property
    def n_unexpected_ends(self) -> int:
        """Number of workers that ended unexpectedly."""
        query = "select count(*) as n from worker_ends where ended = 'unexpected'"
        return int(self.run.rows(query)[0]["n"])
