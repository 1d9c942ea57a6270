"""Counts of the rows of one process, from the batches that its recorder has encoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from dask_strata.schema.keys import split_wire_key, wire_key
from dask_strata.store.segments.encode import Sparse
from dask_strata.store.segments.frames import Batch
from dask_strata.store.segments.intervals import Intervals

#: Bound on the values of a label that a user's names decide: prefixes, and kinds of seconds and
#: losses. Values beyond it are counted under `OTHER`.
MAX_VALUES = 100

OTHER = "(other)"

#: Longest value of a label, in characters.
_MAX_LENGTH = 200

_NS_PER_SECOND = 1_000_000_000

_SUCCESS_OR_FAILURE = ("memory", "erred")

#: Begins of the wire text of a tuple whose first element is a text, and where that text begins.
_TUPLES = (wire_key(("",))[:-3], wire_key(("'",))[:-4])
_NAME = len(_TUPLES[0])

#: Bound on names of groups whose labels are cached.
_MAX_NAMES = 10_000


class Tally:
    """Add up batches of rows. One thread adds at a time; any thread may read.

    Parameters
    ----------
    prefix_of : callable
        Returns Dask's prefix of the text of a key.
    clean : callable, optional
        Replaces left-out facts in a prefix.

    Attributes
    ----------
    attempts : Counter
        Attempts that ended, by prefix and outcome. The outcomes are those of the table `attempts`.
    nanoseconds : Counter
        Durations of the phases of these attempts, by action.
    spill_seconds : Counter
        Seconds of writes and reads of spilled results, by action.
    moved : Counter
        Bytes of transfers between workers, by direction.
    spilled : Counter
        Bytes of results that Dask spilled and read again, by action.
    losses : Counter
        Losses by kind, as in the table `losses`.
    rows : Counter
        Rows by table.

    Examples
    --------
    >>> tally = Tally(lambda key: key.split("-")[0])
    >>> columns = {"key": ["inc-1"], "start_state": ["processing"], "finish_state": ["memory"]}
    >>> tally.add([Batch("scheduler_transitions", 1, columns)])
    >>> tally.attempts
    Counter({('inc', 'memory'): 1})
    """

    def __init__(
        self, prefix_of: Callable[[str], str], clean: Callable[[str], str] | None = None
    ) -> None:
        self._prefix_of, self._clean = prefix_of, clean
        self._shown: dict[str, str] = {}
        self._of_name: dict[str, str] = {}
        self.attempts: Counter[tuple[str, str]] = Counter()
        self.nanoseconds: Counter[str] = Counter()
        self.spill_seconds: Counter[str] = Counter()
        self.moved: Counter[str] = Counter()
        self.spilled: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()
        self.rows: Counter[str] = Counter()
        self._tables: dict[str, Callable[[Batch], None]] = {
            "scheduler_transitions": self._transitions,
            "transfer_ends": self._transfers,
            "spills": self._spills,
            "losses": self._losses,
        }

    def add(self, batches: Sequence[Batch]) -> None:
        """Count the rows of some batches.

        Parameters
        ----------
        batches : sequence of Batch
            The rows.
        """
        for batch in batches:
            self.rows[batch.table] += batch.n
            if (count := self._tables.get(batch.table)) is not None:
                count(batch)

    def _transitions(self, batch: Batch) -> None:
        starts, finishes = _list(batch, "start_state"), _list(batch, "finish_state")
        ended = [i for i, start in enumerate(starts) if start == "processing"]
        if not ended:
            return
        keys = _list(batch, "key")
        attempts, prefix_of = self.attempts, self._prefix
        odd = []
        for i in ended:
            finish = finishes[i]
            if finish in _SUCCESS_OR_FAILURE:
                attempts[prefix_of(keys[i]), finish] += 1
            else:
                odd.append(i)
        if odd:
            outcomes = _outcomes(batch, odd)
            attempts.update((prefix_of(keys[i]), outcomes[i]) for i in odd)
        self._phases(batch)

    def _phases(self, batch: Batch) -> None:
        column = batch.columns.get("startstops")
        values = column.values if isinstance(column, Sparse) else column
        sums: dict[str, int] = {}
        if isinstance(values, Intervals):
            actions, _, durations, _ = values.fields
            for action, duration in zip(actions, durations, strict=True):
                sums[action] = sums.get(action, 0) + duration
        elif isinstance(values, list):
            for action, _, duration, _ in (one for row in values if row for one in row):
                sums[action] = sums.get(action, 0) + duration
        for action, total in sums.items():
            _count(self.nanoseconds, str(action), total)

    def _prefix(self, wire: str) -> str:
        """Return the label of a key's prefix. Keys of a group share the first part of a tuple."""
        if not wire.startswith(_TUPLES):
            return self._label(split_wire_key(wire)[0])
        name = wire[_NAME : wire.find(wire[_NAME - 1], _NAME)]
        label = self._of_name.get(name)
        if label is None:
            if len(self._of_name) >= _MAX_NAMES:
                self._of_name.clear()
            label = self._of_name[name] = self._label(name)
        return label

    def _label(self, text: str) -> str:
        prefix = self._prefix_of(text)
        shown = self._shown.get(prefix)
        if shown is None:
            if len(self._shown) >= MAX_VALUES:
                return OTHER
            shown = prefix if self._clean is None else self._clean(prefix)
            self._shown[prefix] = shown = shown[:_MAX_LENGTH]
        return shown

    def _transfers(self, batch: Batch) -> None:
        for end, size in zip(_list(batch, "end"), _list(batch, "total_bytes"), strict=True):
            self.moved[end] += size or 0

    def _spills(self, batch: Batch) -> None:
        columns = [_list(batch, name) for name in ("action", "nbytes", "seconds")]
        for action, size, seconds in zip(*columns, strict=True):
            self.spilled[action] += size or 0
            self.spill_seconds[action] += seconds or 0

    def _losses(self, batch: Batch) -> None:
        for kind, n in zip(_list(batch, "what"), _list(batch, "count"), strict=True):
            _count(self.losses, str(kind), 1 if n is None else n)

    def seconds(self) -> dict[str, float]:
        """Return the seconds of phases by action, and of spilling."""
        phases = {action: ns / _NS_PER_SECOND for action, ns in self.nanoseconds.copy().items()}
        return {**phases, **self.spill_seconds.copy()}


def _outcomes(batch: Batch, rows: Sequence[int]) -> dict[int, str]:
    """Return the outcomes of attempts that neither succeeded nor failed, by row."""
    stimuli = _list(batch, "stimulus_id")
    # A row out of processing has a worker and no report if the worker was removed.
    removed = _rows_with(batch, "worker") - _rows_with(batch, "run_id")
    failed = _rows_with(batch, "exception")
    outcomes = {}
    for i in rows:
        if i in failed:
            outcomes[i] = "retried"
        elif i in removed:
            outcomes[i] = "lost"
        else:
            rescheduled = str(stimuli[i]).startswith("reschedule-")
            outcomes[i] = "rescheduled" if rescheduled else "released"
    return outcomes


def _count(counter: Counter[str], value: str, n: int) -> None:
    """Add to a counter, under `OTHER` if it has too many values already."""
    if value not in counter and len(counter) >= MAX_VALUES:
        value = OTHER
    counter[value[:_MAX_LENGTH]] += n


def _list(batch: Batch, name: str) -> list[Any]:
    """Return the values of a column, one for each row."""
    column = batch.columns.get(name)
    if isinstance(column, list):
        return column
    if isinstance(column, Sparse):
        values = dict(zip(column.rows, column.values, strict=True))
        return [values.get(i) for i in range(batch.n)]
    return [column] * batch.n


def _rows_with(batch: Batch, name: str) -> set[int]:
    """Return the rows that have a value in a column."""
    column = batch.columns.get(name)
    if isinstance(column, Sparse):
        return set(column.rows)
    return {i for i, value in enumerate(_list(batch, name)) if value is not None}
