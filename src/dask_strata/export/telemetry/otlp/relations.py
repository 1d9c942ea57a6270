"""Which submission an attempt belongs to, and which attempts made the results that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dask_strata.analysis.series.columns import Array, Index, Ints, Names, columns
from dask_strata.export.dependencies import dependencies
from dask_strata.export.json_text import Lists, joined
from dask_strata.export.telemetry.otlp.ids import ATTEMPT, span_ids

if TYPE_CHECKING:
    import pyarrow as pa

    from dask_strata.run import Run

#: Attempts that become spans; others have no begin or no end on record.
SPANS = "start is not null and stop is not null and _key is not null"

_ATTEMPTS = f"""
    select attempt, _key::bigint as key, epoch_ns(start) as start, epoch_ns(stop) as stop,
           coalesce(outcome = 'memory', false) as done
    from attempts where {SPANS}
"""  # noqa: S608  no value of the record

_SUBMITTED = """
    select distinct g._key::bigint as key, g.submission, epoch_ns(s.time) as time
    from graph_tasks g join submissions s on s.submission = g.submission
    where g._key is not null and s.time is not null
"""


class _Timeline:
    """Events of keys, in order of their times."""

    def __init__(self, key: Ints, time: Ints) -> None:
        self.order = np.lexsort((time, key))
        self._key, self._time = key[self.order], time[self.order]

    def last(self, key: Ints, time: Ints) -> Ints:
        """Return the last event of some keys until some times; -1 if there is none."""
        first = np.searchsorted(self._key, key, side="left")
        last = np.searchsorted(self._key, key, side="right") - 1
        late = np.arange(len(key)) if len(self._key) else np.empty(0, np.int64)
        while len(late):
            late = late[last[late] >= first[late]]
            late = late[self._time[last[late]] > time[late]]
            last[late] -= 1
        found = np.full(len(key), -1, np.int64)
        known = last >= first
        found[known] = self.order[last[known]]
        return found


class Relations:
    """Attempts with the submissions and attempts that they are related to.

    Parameters
    ----------
    run : Run
        The run.
    trace : str
        Id of its trace.
    most_links : int
        Most links of a span.

    Attributes
    ----------
    ends : dict
        When the last attempt of each submission ended, in nanoseconds.
    unlinked : int
        Dependencies whose result no attempt on record had made by then.
    dropped : int
        Links beyond the most of their span.
    """

    def __init__(self, run: Run, trace: str, most_links: int) -> None:
        found = columns(run, _ATTEMPTS, narrow=("attempt", "key"))
        order = np.argsort(found["attempt"], kind="stable")
        found = {name: values[order] for name, values in found.items()}
        self._numbers = found.pop("attempt")
        self._index = Index(self._numbers)
        self.start, self.stop = found["start"], found["stop"]
        self._submissions = Names()
        self._submission = self._find_submissions(run, found["key"])
        self.ends = self._ends()
        self.unlinked = 0
        self._most = most_links
        self._links = self._find_links(run, trace, found["key"], found["done"].astype(np.bool_))
        counts = self._links.counts(np.arange(len(self)))
        self.dropped = int(np.maximum(counts - most_links, 0).sum())
        self.n_links = int(counts.sum()) - self.dropped

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def numbers(self) -> range:
        """The range of the numbers of attempts."""
        first, last = self._numbers[[0, -1]].tolist() if len(self) else (0, -1)
        return range(first, last + 1)

    def find(self, numbers: Ints) -> Ints:
        """Return the index of attempts by their numbers; -1 for those that are no span."""
        return self._index.find(numbers)

    def submission(self, attempts: Ints) -> Ints:
        """Return the number of the submission of some attempts; -1 if it is unknown."""
        found: Ints = self._submission[attempts]
        return found

    @property
    def submissions(self) -> list[str]:
        """Ids of the submissions by number."""
        return self._submissions.names

    def links(self, attempts: Ints) -> tuple[Array, Array]:
        """Return the links of some attempts as text, and how many more there are of each."""
        texts = self._links.of(attempts, self._most)
        return texts, np.maximum(self._links.counts(attempts) - self._most, 0)

    def _find_submissions(self, run: Run, key: Ints) -> Ints:
        for row in run.rows("select submission from submissions order by time, submission"):
            self._submissions.number(row["submission"])
        submitted = columns(
            run, _SUBMITTED, names={"submission": self._submissions}, narrow=("key",)
        )
        timeline = _Timeline(submitted["key"], submitted["time"])
        found = timeline.last(key, self.start)
        return np.where(found >= 0, np.append(submitted["submission"], -1)[found], -1)

    def _ends(self) -> dict[str, int]:
        known = self._submission >= 0
        ends = np.full(len(self.submissions), -1, np.int64)
        np.maximum.at(ends, self._submission[known], self.stop[known])
        times = ends.tolist()
        return {name: end for name, end in zip(self.submissions, times, strict=True) if end >= 0}

    def _find_links(self, run: Run, trace: str, key: Ints, done: Array) -> Lists:
        task, needs = dependencies(run)
        task, needs = task[task != needs], needs[task != needs]
        by_key = np.argsort(key, kind="stable")
        first, end = (np.searchsorted(key[by_key], task, side) for side in ("left", "right"))
        counts = end - first
        rows = np.repeat(np.arange(len(counts)), counts)
        offsets = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        child = by_key[first[rows] + offsets]
        makers = np.flatnonzero(done)
        timeline = _Timeline(key[makers], self.stop[makers])
        found = timeline.last(needs[rows], self.start[child])
        self.unlinked = int((found < 0).sum())
        child, found = child[found >= 0], found[found >= 0]
        parents = makers[found]

        def texts(attempts: Ints) -> pa.Array:
            ids = span_ids(ATTEMPT, self._numbers[attempts])
            return joined(f'{{"traceId":"{trace}","spanId":"', ids, '"}')

        return Lists(child, parents, texts, len(self))
