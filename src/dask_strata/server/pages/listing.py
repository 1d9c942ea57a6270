"""The list of runs: which of them a request selects, their facets, order and trend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any
from urllib.parse import urlencode

Row = Mapping[str, Any]

#: Facets: the name in an address, and the values of a row.
FACETS: dict[str, Callable[[Row], tuple[str, ...]]] = {
    "state": lambda row: _one(row, "outcome"),
    "name": lambda row: _one(row, "name"),
    "user": lambda row: _one(row, "user"),
    "tag": lambda row: tuple(row.get("tags") or ()),
    "commit": lambda row: _one(row, "git_commit"),
    "insight": lambda row: _one(row, "cause"),
}

#: Columns by which the list is sorted: the name in an address, and the column of a row.
SORTS = {
    "run": "run",
    "name": "name",
    "state": "outcome",
    "start": "start",
    "duration": "duration_seconds",
    "tasks": "tasks",
    "failed": "errors",
    "tags": "tags",
    "user": "user",
    "commit": "git_commit",
    "insight": "insight_seconds",
    "size": "size_bytes",
}

#: Values of a row that the search reads.
_TEXTS = ("run", "name", "outcome", "user", "git_commit", "cause", "insight", "note", "problem")

#: Values of a facet that are shown: the most frequent ones.
_SHOWN = 12

#: Earlier runs whose median is the usual value, for the trend.
_USUAL = 5


@dataclass(frozen=True)
class Choice:
    """One value of a facet.

    Attributes
    ----------
    value : str
        The value.
    n : int
        Number of runs that have it, among those that the other facets and the words select.
    chosen : bool
        Whether it is selected.
    address : str
        Address that selects it, or no longer selects it.
    """

    value: str
    n: int
    chosen: bool
    address: str


@dataclass(frozen=True)
class Selection:
    """The part of the list that a request selects.

    Parameters
    ----------
    words : str
        Words that a row contains, all of them.
    chosen : dict of str to tuple of str
        Selected values by facet: a row has one of each facet.
    sort : str
        Name of a column; with a hyphen before it, the largest values are first. Empty for the
        newest runs first.
    """

    words: str = ""
    chosen: dict[str, tuple[str, ...]] = field(default_factory=dict)
    sort: str = ""

    @classmethod
    def of(cls, values: Callable[[str], Sequence[str]]) -> Selection:
        """Return the selection of a request.

        Parameters
        ----------
        values : callable
            Returns the values of an argument.
        """
        chosen = {name: tuple(values(name)) for name in FACETS if values(name)}
        sort = (*values("sort"), "")[0]
        sort = sort if sort.removeprefix("-") in SORTS else ""
        return cls((*values("q"), "")[0].strip(), chosen, sort)

    @property
    def address(self) -> str:
        """The address of the list with this selection."""
        pairs = [("q", self.words)] if self.words else []
        pairs += [(name, value) for name, values in self.chosen.items() for value in values]
        pairs += [("sort", self.sort)] if self.sort else []
        return f"/?{urlencode(pairs, errors='replace')}" if pairs else "/"

    def rows(self, rows: Iterable[Row], *, without: str | None = None) -> list[Row]:
        """Return the selected rows in order.

        Parameters
        ----------
        rows : iterable of mapping
            All rows, the newest first.
        without : str, optional
            A facet that does not count.
        """
        words = self.words.lower().split()
        found = [
            row
            for row in rows
            if all(
                name == without or not set(values).isdisjoint(FACETS[name](row))
                for name, values in self.chosen.items()
            )
            and (not words or all(word in _text(row) for word in words))
        ]
        if not self.sort:
            return found
        column = SORTS[self.sort.removeprefix("-")]
        known = [row for row in found if row.get(column) not in (None, ())]
        known.sort(key=lambda row: row[column], reverse=self.sort.startswith("-"))
        return known + [row for row in found if row.get(column) in (None, ())]

    def facets(self, rows: Sequence[Row]) -> dict[str, list[Choice]]:
        """Return the values of each facet that divides the runs, the most frequent first.

        Parameters
        ----------
        rows : sequence of mapping
            All rows.
        """
        found = {}
        for name, values_of in FACETS.items():
            chosen = self.chosen.get(name, ())
            others = self.rows(rows, without=name)
            counts = Counter(value for row in others for value in values_of(row))
            shown = [value for value, _ in counts.most_common(_SHOWN)]
            shown += [value for value in chosen if value not in shown]
            if chosen or any(counts[value] < len(others) for value in shown):
                found[name] = [
                    Choice(value, counts[value], value in chosen, self._toggled(name, value))
                    for value in shown
                ]
        return found

    def sorted_by(self, column: str) -> tuple[str, str | None]:
        """Return the address that sorts by a column, and its present direction for ARIA.

        Parameters
        ----------
        column : str
            Its name in an address.
        """
        present = {column: "ascending", f"-{column}": "descending"}.get(self.sort)
        # Numbers and times are sorted with the largest first.
        first = f"-{column}" if column in _LARGEST_FIRST else column
        other = column if first != column else f"-{column}"
        return replace(self, sort=other if self.sort == first else first).address, present

    def _toggled(self, name: str, value: str) -> str:
        old = self.chosen.get(name, ())
        new = tuple(each for each in old if each != value) if value in old else (*old, value)
        chosen = {**self.chosen, name: new}
        return replace(self, chosen={n: v for n, v in chosen.items() if v}).address


_LARGEST_FIRST = ("start", "duration", "tasks", "failed", "insight", "size")


def _one(row: Row, column: str) -> tuple[str, ...]:
    value = row.get(column)
    return (value,) if value else ()


def _text(row: Row) -> str:
    """Return the text of a row that is searched, in lower case."""
    start = row.get("start")
    texts = [row.get(name) or "" for name in _TEXTS]
    texts += [*(row.get("tags") or ()), f"{start:%Y-%m-%d %H:%M}" if start else ""]
    return "\n".join(texts).lower()


#: Values whose trend can be shown, by their column, with the word for them.
TRENDS = {
    "duration_seconds": "duration",
    "tasks": "tasks",
    "errors": "failed tasks",
    "insight_seconds": "cost of the worst insight",
    "size_bytes": "size of the record",
}


@dataclass(frozen=True)
class Point:
    """One run of a trend.

    Attributes
    ----------
    row : mapping
        Its row in the list.
    value : float or None
        The value; None if it is not on record.
    change : float or None
        Difference to the median of up to five finished runs before it, as a share of that median.
    x, y : float
        Its place in the drawing: the share of the time, and of the largest value.
    """

    row: Row
    value: float | None
    change: float | None
    x: float
    y: float


def trend(rows: Iterable[Row], column: str) -> list[Point]:
    """Return the runs of a trend, the oldest first.

    Parameters
    ----------
    rows : iterable of mapping
        Rows of runs of one script.
    column : str
        The column of `TRENDS`.
    """
    ordered = sorted((row for row in rows if row.get("start")), key=lambda row: row["start"])
    if not ordered:
        return []
    first = ordered[0]["start"]
    span = (ordered[-1]["start"] - first).total_seconds()
    largest = max((row.get(column) or 0 for row in ordered), default=0)
    usual: list[float] = []
    points = []
    for row in ordered:
        value = row.get(column)
        middle = median(usual[-_USUAL:]) if usual else None
        points.append(
            Point(
                row,
                value,
                (value - middle) / middle if value is not None and middle else None,
                (row["start"] - first).total_seconds() / span if span else 0.5,
                (value or 0) / largest if largest else 0,
            )
        )
        if value is not None and row.get("outcome") in ("finished", "imported"):
            usual.append(value)
    return points
