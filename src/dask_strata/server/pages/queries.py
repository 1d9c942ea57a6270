"""The SQL of a page of a table: filters, order, facets. Names and values are quoted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from dask_strata.schema import Table

#: Rows of a page.
ROWS = 100

#: Comparisons of a filter: name in an address, and words.
OPERATORS = {
    "eq": "=",
    "ne": "≠",
    "has": "contains",
    "lt": "<",
    "gt": ">",
    "null": "is unknown",
    "known": "is known",
}

#: Columns with few values, which are facets wherever a table has them; at most so many.
_FACETS = (
    "state", "outcome", "role", "prefix", "level", "action", "kind", "cause", "finish_state",
    "worker", "host", "function", "dataset", "reason", "name",
)  # fmt: skip
_MOST_FACETS = 4
_VALUES = 10

#: Columns that make the order of rows the same on each page.
_ORDER = ("time", "start", "submitted", "started", "key", "process", "seq", "attempt", "worker")

#: Digits of the number of a page.
_PAGE_DIGITS = 7

_TEXT = ("text", "long", "key")

#: Kinds of columns whose values are compared as such: a time or a boolean has several texts.
_TYPED = ("time", "seconds", "bytes", "int", "float", "bool")


@dataclass(frozen=True)
class Filter:
    """One condition: a column, one of `OPERATORS`, and a value."""

    column: str
    operator: str
    value: str

    @classmethod
    def of(cls, text: str) -> Filter | None:
        """Return the filter in an argument ``column:operator:value``; None if it is none."""
        column, _, rest = text.partition(":")
        operator, _, value = rest.partition(":")
        return cls(column, operator, value) if operator in OPERATORS else None

    @property
    def argument(self) -> str:
        """The filter in an address."""
        return f"{self.column}:{self.operator}:{self.value}"

    def sql(self, typed: frozenset[str]) -> str:
        """Return the condition in SQL.

        Parameters
        ----------
        typed : frozenset of str
            Columns whose values are compared as such, instead of as texts.
        """
        column, value = name(self.column), literal(self.value)
        compared = column if self.column in typed else f"{column}::varchar"
        return {
            "eq": f"{compared} = {value}",
            "ne": f"{compared} is distinct from {value}",
            "has": f"contains(lower({column}::varchar), lower({value}))",
            "lt": f"{column} < {value}",
            "gt": f"{column} > {value}",
            "null": f"{column} is null",
            "known": f"{column} is not null",
        }[self.operator]


@dataclass(frozen=True)
class View:
    """A page of a table.

    Parameters
    ----------
    table : Table
        The table.
    filters : tuple of Filter
        Conditions, which rows meet all.
    words : str
        A text that one of the row's texts contains.
    sort : str
        Name of a column; with a hyphen before it, the largest values are first.
    page : int
        Number of the page, from 1.
    """

    table: Table
    filters: tuple[Filter, ...] = ()
    words: str = ""
    sort: str = ""
    page: int = 1

    @property
    def columns(self) -> list[str]:
        """The names of all columns."""
        return [column.name for column in self.table.all_columns]

    @property
    def where(self) -> str:
        """The conditions, as a clause."""
        typed = frozenset(c.name for c in self.table.all_columns if c.kind in _TYPED)
        conditions = [each.sql(typed) for each in self.filters]
        texts = [column.name for column in self.table.all_columns if column.kind in _TEXT]
        if self.words and texts:
            word = literal(self.words)
            found = (f"contains(lower({name(each)}::varchar), lower({word}))" for each in texts)
            conditions.append(f"({' or '.join(found)})")
        return f" where {' and '.join(conditions)}" if conditions else ""

    @property
    def query(self) -> str:
        """The rows of all pages, for the reader."""
        return f"select * from {name(self.table.name)}{self.where}{self._order}"  # noqa: S608  quoted

    @property
    def rows(self) -> str:
        """The rows of this page, and one more if there is another page."""
        return f"{self.query} limit {ROWS + 1} offset {ROWS * (self.page - 1)}"

    @property
    def count(self) -> str:
        """The number of rows."""
        return f"select count(*) from {name(self.table.name)}{self.where}"  # noqa: S608  quoted

    @property
    def facet_columns(self) -> list[str]:
        """The columns that are facets."""
        present = set(self.columns)
        return [each for each in _FACETS if each in present][:_MOST_FACETS]

    @property
    def facets(self) -> str | None:
        """The most frequent values of each facet; None without facets."""
        parts = [
            f"(select {literal(each)}, {name(each)}::varchar, count(*) as n "  # noqa: S608  quoted
            f"from {name(self.table.name)}{self.where} group by 2 order by n desc, 2 "
            f"limit {_VALUES})"
            for each in self.facet_columns
        ]
        return " union all ".join(parts) if parts else None

    @property
    def _order(self) -> str:
        present = self.columns
        first = self.sort.removeprefix("-")
        order = [] if first not in present else [first]
        order += [each for each in _ORDER if each in present and each != first]
        down = " desc" if self.sort.startswith("-") and order and order[0] == first else ""
        terms = [f"{name(each)}{down if i == 0 else ''} nulls last" for i, each in enumerate(order)]
        return f" order by {', '.join(terms)}" if terms else ""

    def arguments(self) -> str:
        """Return this view as arguments of an address."""
        pairs = [("f", each.argument) for each in self.filters]
        pairs += [("q", self.words)] if self.words else []
        pairs += [("sort", self.sort)] if self.sort else []
        pairs += [("page", str(self.page))] if self.page > 1 else []
        return urlencode(pairs, errors="replace")

    def at(self, page: int) -> str:
        """Return the arguments of another page."""
        return replace(self, page=page).arguments()

    def sorted_by(self, column: str) -> str:
        """Return the arguments of the same rows in the order of a column, or in reverse."""
        sort = f"-{column}" if self.sort == column else column
        return replace(self, sort=sort, page=1).arguments()

    def direction(self, column: str) -> str | None:
        """Return the present direction of a column, for ARIA."""
        return {column: "ascending", f"-{column}": "descending"}.get(self.sort)

    def without(self, condition: Filter) -> str:
        """Return the arguments without a condition."""
        rest = tuple(each for each in self.filters if each != condition)
        return replace(self, filters=rest, page=1).arguments()

    def narrowed(self, column: str, value: str | None) -> str:
        """Return the arguments with one more condition: a value of a facet."""
        condition = Filter(column, "null", "") if value is None else Filter(column, "eq", value)
        filters = tuple(dict.fromkeys((*self.filters, condition)))
        return replace(self, filters=filters, page=1).arguments()


def view_of(table: Table, values: Callable[[str], Sequence[str]]) -> View:
    """Return the view of a request.

    Parameters
    ----------
    table : Table
        The table.
    values : callable
        Returns the values of an argument: conditions ``f`` as in an address; ``column``, ``op``
        and ``value`` of a further one, from the form; ``q``, ``sort`` and ``page``.
    """
    one = {n: (*values(n), "")[0] for n in ("column", "op", "value", "q", "sort", "page")}
    known = [each for each in map(Filter.of, values("f")) if each is not None]
    if one["column"] and one["op"] in OPERATORS:
        known.append(Filter(one["column"], one["op"], one["value"]))
    page = one["page"]
    number = int(page) if page.isdecimal() and len(page) < _PAGE_DIGITS else 1
    return View(table, tuple(dict.fromkeys(known)), one["q"].strip(), one["sort"], max(1, number))


def name(text: str) -> str:
    """Return a name, quoted for SQL.

    >>> name('a"b')
    '"a""b"'
    """
    return '"' + text.replace('"', '""').replace("\0", "") + '"'


def literal(text: str) -> str:
    """Return a text, quoted for SQL.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''").replace("\0", "") + "'"
