"""Tasks by number, and the dependencies between them that agree with the times on record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.analysis.series.columns import Array, Index, Ints, Names, columns
from dask_strata.export.dependencies import dependencies
from dask_strata.export.json_text import joined

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Name of tasks of which no prefix is on record.
UNNAMED = "task"

#: A name in the characters that WfFormat allows in ids.
_SAFE_NAME = f"""
    coalesce(nullif(left(regexp_replace(prefix, '[^0-9a-zA-Z_.-]', '_', 'g'), 60), ''), '{UNNAMED}')
"""

_TASKS = f"""
    select _key::bigint as key, life, coalesce(epoch_ns(coalesce(started, _since)), -1) as started,
           coalesce(epoch_ns(finished), -1) as finished, {_SAFE_NAME} as name
    from tasks where _key is not null
"""  # noqa: S608  no value of the record


#: Runs with fewer tasks may be in memory, where ids of keys are not in the order of their texts.
SORTED_TASKS = 300_000

_RANKS = """
    select _key::bigint as key, row_number() over (order by key, key_type, _key) - 1 as rank
    from _keys
"""


@dataclass(frozen=True)
class Edges:
    """Dependencies between tasks, by their numbers.

    Attributes
    ----------
    parent : array of int
        The task that is depended on.
    child : array of int
        The task that depends on it.
    unknown : int
        Dependencies on or of keys that are not tasks of this run, left out.
    itself : int
        Dependencies of a task on itself, left out.
    late : int
        Dependencies on a result that was complete only after the task had started, left out.
    cyclic : int
        Dependencies that close a cycle, left out.
    """

    parent: Ints
    child: Ints
    unknown: int
    itself: int
    late: int
    cyclic: int


class Lives:
    """All tasks of a run, numbered in the order of their keys and lives.

    Parameters
    ----------
    run : Run
        The run.
    """

    def __init__(self, run: Run) -> None:
        names = Names()
        found = columns(run, _TASKS, names={"name": names}, narrow=("key", "life"))
        self._ranks: tuple[Index, Ints] | None = None
        if len(found["key"]) <= SORTED_TASKS:
            ranks = columns(run, _RANKS)
            self._ranks = Index(ranks["key"]), np.append(ranks["rank"], -1)
        found["key"] = self._ranked(found["key"])
        order = np.lexsort((found["life"], found["key"]))
        self._key, self.started, self.finished = (
            found[name][order] for name in ("key", "started", "finished")
        )
        self._life = found["life"][order].astype(np.int64)
        self._name = found["name"][order]
        self._names = pa.array(names.names, pa.string())
        # Few keys have several lives: their places are searched, those of others are direct.
        self._keys, self._first = np.unique(self._key, return_index=True)

    def __len__(self) -> int:
        return len(self._key)

    def every(self, n: int) -> list[int]:
        """Return the id of the key of each n-th task of a large run."""
        ids: list[int] = self._key[::n].tolist()
        return ids

    def _ranked(self, key: Ints) -> Ints:
        """Return the ranks of keys by their ids: the order of their texts."""
        if self._ranks is None:
            return key
        index, rank = self._ranks
        ranks: Ints = rank[index.find(key)]
        return ranks

    def id_of(self, tasks: Ints) -> pa.Array:
        """Return the ids of some tasks, in quotes."""
        digits = pc.utf8_lpad(pa.array(tasks).cast(pa.string()), 7, "0")
        return joined('"', self._names.take(pa.array(self._name[tasks])), "_ID", digits, '"')

    def number(self, key: Ints, life: Ints) -> Ints:
        """Return the number of tasks that exist, by the ids of their keys and their lives."""
        at = self._first[np.searchsorted(self._keys, self._ranked(key))]
        wrong = np.flatnonzero(self._life[at] != life)
        while len(wrong):
            at[wrong] += 1
            wrong = wrong[self._life[at[wrong]] != life[wrong]]
        return at

    def place(self, key: Ints) -> tuple[Ints, Ints]:
        """Return the number of the first task of some keys, and one beyond the last."""
        if not len(self._keys):
            return key * 0, key * 0
        key = self._ranked(key)
        at = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
        ends = np.append(self._first[1:], len(self))
        known = self._keys[at] == key
        return np.where(known, self._first[at], 0), np.where(known, ends[at], 0)

    def of_key(self, key: Ints) -> tuple[Ints, Ints]:
        """Return the tasks of some keys: the row of the key, and the number of the task."""
        first, end = self.place(key)
        counts = end - first
        rows = np.repeat(np.arange(len(key)), counts)
        offsets = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows, first[rows] + offsets

    def edges(self, run: Run) -> Edges:
        """Return the dependencies between tasks that are possible.

        Parameters
        ----------
        run : Run
            The run.
        """
        task, needs = dependencies(run)
        itself = task == needs
        task, needs = task[~itself], needs[~itself]
        rows, child = self.of_key(task)
        first, end = self.place(needs)
        unknown = int(((end == first) | ~np.isin(self._ranked(task), self._keys)).sum())
        known = end[rows] > first[rows]
        child, rows = child[known], rows[known]
        parent = self._last_finished(first[rows], end[rows], self.started[child])
        late = (self.finished[parent] > self.started[child]) & (self.started[child] >= 0)
        parent, child = parent[~late], child[~late]
        kept = ~self._closes_cycle(parent, child)
        return Edges(
            parent[kept],
            child[kept],
            unknown,
            int(itself.sum()),
            int(late.sum()),
            int((~kept).sum()),
        )

    def _last_finished(self, first: Ints, end: Ints, started: Ints) -> Ints:
        """Return the last of some tasks that had finished at a time; the first one if none had."""
        last = end - 1
        late = np.flatnonzero(last > first)
        while len(late):
            finished = self.finished[last[late]]
            late = late[(finished > started[late]) | (finished < 0)]
            last[late] -= 1
            late = late[last[late] > first[late]]
        return last

    def _closes_cycle(self, parent: Ints, child: Ints) -> Array:
        """Return which dependencies go backwards in time within a cycle of dependencies."""
        n = len(self)
        unknown = np.iinfo(np.int64).max
        finished = np.where(self.finished < 0, unknown, self.finished)
        rank = np.empty(n, np.int64)
        rank[np.lexsort((self.started, finished))] = np.arange(n)
        backward = rank[parent] > rank[child]
        if not backward.any():
            return backward
        # A cycle has its first and its last task at dependencies that go backwards.
        low, high = rank[child[backward]].min(), rank[parent[backward]].max()
        near = (rank >= low) & (rank <= high)
        inner = near[parent] & near[child]
        left = _in_cycles(n, parent[inner], child[inner])
        cyclic: Array = backward & left[parent] & left[child]
        return cyclic


def _in_cycles(n: int, parent: Ints, child: Ints) -> Array:
    """Return which tasks are in cycles, or between two of them."""
    left = np.ones(n, np.bool_)
    for source, target in ((parent, child), (child, parent)):
        order = np.argsort(source, kind="stable")
        first = np.searchsorted(source[order], np.arange(n + 1))
        needed = np.bincount(target, minlength=n)
        ready = np.flatnonzero((needed == 0) & left)
        while len(ready):
            left[ready] = False
            counts = first[ready + 1] - first[ready]
            ends = np.cumsum(counts)
            rows = np.arange(int(ends[-1])) + np.repeat(first[ready] - (ends - counts), counts)
            reached, times = np.unique(target[order[rows]], return_counts=True)
            needed[reached] -= times
            ready = reached[(needed[reached] == 0) & left[reached]]
    return left
