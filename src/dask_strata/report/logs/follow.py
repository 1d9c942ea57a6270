"""New entries of logs while a run is recorded."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from dask_strata.analysis.logs import Entries, entries_of
from dask_strata.report.logs.lines import lines_of
from dask_strata.run.table_view import microseconds

if TYPE_CHECKING:
    from dask_strata.analysis.logs import Wanted
    from dask_strata.run import Run

#: Time between two looks for new rows.
_EVERY_SECONDS = 0.5

#: Age of an entry that is printed. A worker's line and the record of which it is the printed form
#: arrive from two processes: a line that is older would have been recognised.
_AGE = timedelta(seconds=1)

#: How much later than its time an entry may arrive.
_LATE = timedelta(seconds=30)


def follow(run: Run, conditions: Wanted) -> Iterator[str]:
    """Yield the lines of entries, old and new, until the recording ends.

    Parameters
    ----------
    run : Run
        The run.
    conditions : Wanted
        Conditions on the entries.
    """
    shown: Counter[tuple[Any, ...]] = Counter()
    after: datetime | None = None
    while run.state == "recording":
        until = datetime.now(timezone.utc) - _AGE
        yield from _new(entries_of(run, conditions, after, until, attempts=False), shown)
        after = until - _LATE
        _forget(shown, after)
        time.sleep(_EVERY_SECONDS)
        run.refresh()
    run.refresh()
    yield from _new(entries_of(run, conditions, after, attempts=False), shown)


def _new(entries: Entries, shown: Counter[tuple[Any, ...]]) -> Iterator[str]:
    found: Counter[tuple[Any, ...]] = Counter()
    for row in microseconds(entries.rows).to_pylist():
        identity = (row["time"], row["process"], row["stream"], row["message"])
        found[identity] += 1
        if found[identity] > shown[identity]:
            yield from lines_of(row)
    shown |= found


def _forget(shown: Counter[tuple[Any, ...]], before: datetime) -> None:
    for identity in [each for each in shown if each[0] <= before]:
        del shown[identity]
