"""Times of the samples: steps of equal length that cover the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Lengths of a step, in milliseconds.
_LENGTHS = (
    *(100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000),
    *(600_000, 1_800_000, 3_600_000, 14_400_000, 43_200_000, 86_400_000),
)

#: Steps of a run: fewer if it has many workers.
_MOST, _LEAST = 1_000, 60
_MOST_SAMPLES_OF_WORKERS = 200_000

#: Prometheus forgets a series after 5 minutes without a sample.
_LONGEST_GAP_MS = 240_000

_BOUNDS = """
    select min(epoch_ns(t)) as first, max(epoch_ns(t)) as last from (
        select min(start) as t from attempts union all select max(stop) from attempts
        union all select min(stop) from attempts
        union all select min(stop) from transfers union all select max(stop) from transfers
        union all select min(time) from spills union all select max(time) from spills
        union all select min(time) from worker_samples
        union all select max(time) from worker_samples
        union all select min(start) from workers union all select max(stop) from workers
    )
"""


@dataclass(frozen=True)
class Steps:
    """Steps of equal length.

    Attributes
    ----------
    origin_ms : int
        The time of step 0, before all events, in milliseconds.
    length_ms : int
        Length of a step.
    last : int
        Number of the last step, at or after all events.
    """

    origin_ms: int
    length_ms: int
    last: int

    @classmethod
    def of(cls, run: Run, n_workers: int) -> Steps | None:
        """Return the steps of a run; None if it has no events."""
        bounds = run.rows(_BOUNDS)[0]
        if bounds["first"] is None:
            return None
        first, last = bounds["first"] // 1_000_000, -(-bounds["last"] // 1_000_000)
        most = max(_LEAST, min(_MOST, _MOST_SAMPLES_OF_WORKERS // max(1, n_workers)))
        shortest = (last - first) / most
        length = next((each for each in _LENGTHS if each >= shortest), _LENGTHS[-1])
        if length < shortest:
            length *= -(-int(shortest) // length) + 1
        origin = first // length * length - length
        return cls(origin, length, -(-(last - origin) // length))

    def sql(self, time: str) -> str:
        """Return SQL for the number of the step at or after a time."""
        past = f"(epoch_ns({time}) - {self.origin_ms * 1_000_000})"
        length = self.length_ms * 1_000_000
        return f"(({past} + {length - 1}) // {length})"

    def time(self, step: int) -> str:
        """Return the time of a step, in seconds."""
        seconds, ms = divmod(self.origin_ms + step * self.length_ms, 1_000)
        return f"{seconds}.{ms:03d}"

    @property
    def gap(self) -> int:
        """Most steps without a sample."""
        return max(1, _LONGEST_GAP_MS // self.length_ms)
