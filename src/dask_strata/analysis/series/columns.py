"""Columns of numbers of large tables, read in parts: in numpy, without a table of all rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from dask_strata.run import Run

Ints = npt.NDArray[np.integer[Any]]
Array = npt.NDArray[Any]


class Names:
    """Numbers for texts that occur in many rows, such as workers and prefixes.

    >>> names = Names()
    >>> names.codes(pa.array(["b", "a", None, "b"])).tolist(), names.names
    ([0, 1, -1, 0], ['b', 'a'])
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._known: dict[str, int] = {}

    def codes(self, column: pa.Array) -> npt.NDArray[np.int32]:
        """Return the number of each text, in order of their first occurrence; -1 for null."""
        found = pc.dictionary_encode(column)
        numbers = [self.number(text) for text in found.dictionary.to_pylist()]
        indices = found.indices.fill_null(len(numbers)).to_numpy(zero_copy_only=False)
        codes: npt.NDArray[np.int32] = np.array([*numbers, -1], np.int32)[indices]
        return codes

    def number(self, text: str) -> int:
        """Return the number of one text."""
        number = self._known.setdefault(text, len(self.names))
        if number == len(self.names):
            self.names.append(text)
        return number


class Index:
    """Where numbers are in an array in which each occurs once.

    >>> Index(np.array([5, 3, 4])).find(np.array([3, 9, 5])).tolist()
    [1, -1, 0]
    """

    def __init__(self, numbers: Ints) -> None:
        self._n = len(numbers)
        self._first = int(numbers.min()) if self._n else 0
        # Numbers of attempts and of keys are without gaps: then their places need no search.
        self._dense = self._n > 0 and int(numbers.max()) - self._first + 1 == self._n
        if self._dense:
            self._at = np.full(self._n, -1, np.int32)
            self._at[numbers - self._first] = np.arange(self._n, dtype=np.int32)
        else:
            self._at = np.argsort(numbers, kind="stable").astype(np.int32)
            self._sorted = numbers[self._at]

    def find(self, numbers: Ints) -> Ints:
        """Return the index of each number; -1 for numbers that are not there."""
        if not self._n:
            return np.full(len(numbers), -1, np.int64)
        if self._dense:
            place = np.clip(numbers - self._first, 0, self._n - 1)
            known = place + self._first == numbers
        else:
            place = np.minimum(np.searchsorted(self._sorted, numbers), self._n - 1)
            known = self._sorted[place] == numbers
        return np.where(known, self._at[place], -1)


def columns(
    run: Run,
    query: str,
    *parameters: Any,
    names: dict[str, Names] | None = None,
    narrow: Collection[str] = (),
) -> dict[str, Array]:
    """Return the columns of a query; columns of texts have numbers.

    Parameters
    ----------
    run : Run
        The run.
    query : str
        The query. Its columns have no nulls, except those of texts.
    *parameters
        Its parameters.
    names : dict, optional
        The numbers of the texts, by the name of the column.
    narrow : collection of str, optional
        Columns of integers with as few bytes as their values need.
    """
    parts: dict[str, list[Array]] = {}
    for batch in run.batches(query, *parameters):
        for name, part in arrays(batch, names).items():
            parts.setdefault(name, []).append(_narrowed(part) if name in narrow else part)
    found = {}
    for name in list(parts):
        found[name] = np.concatenate(parts.pop(name))  # frees each column's parts at once
    return found


def _narrowed(values: Array) -> Array:
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return values.astype(kind)
    return values


def arrays(batch: pa.RecordBatch, names: dict[str, Names] | None = None) -> dict[str, Array]:
    """Return the columns of a part of an answer; see `columns`."""
    return {
        name: names[name].codes(column)
        if names and name in names
        else column.to_numpy(zero_copy_only=False)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }


def groups(parts: Iterator[dict[str, Array]], by: str) -> Iterator[tuple[int, dict[str, Array]]]:
    """Yield the rows of each value of a column, of parts that are in the order of this column.

    >>> parts = [{"w": np.array([0, 0, 2])}, {"w": np.array([2, 3])}]
    >>> [(value, len(rows["w"])) for value, rows in groups(iter(parts), "w")]
    [(0, 2), (2, 2), (3, 1)]
    """
    held: list[dict[str, Array]] = []
    for part in parts:
        if not len(part[by]):
            continue
        ends = [*(np.flatnonzero(np.diff(part[by])) + 1).tolist(), len(part[by])]
        begin = 0
        for end in ends:
            rows = {name: values[begin:end] for name, values in part.items()}
            if held and held[0][by][0] != rows[by][0]:
                yield _group(held, by)
                held = []
            held.append(rows)
            begin = end
    if held:
        yield _group(held, by)


def _group(held: list[dict[str, Array]], by: str) -> tuple[int, dict[str, Array]]:
    rows = held[0] if len(held) == 1 else {n: np.concatenate([h[n] for h in held]) for n in held[0]}
    return int(rows[by][0]), rows
