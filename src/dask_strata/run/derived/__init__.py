"""Derived tables: one ``.sql`` file for each, a query over recorded and other derived tables.

The head of a file is SQL comments: a sentence on the rows, and a line ``-- depends on:`` with all
tables that the query names. The list continues on the next line after a comma at the end of one.
Files whose names begin with an underscore are internal tables.

A line ``-- by key:`` lists the tables of which a row of this one needs only the rows of its own
key. Such a table is computed in buckets of keys: from the bucket's rows of these tables, and from
all rows of the others. A line ``-- order:`` has the order of rows that are stored in that of keys.

Queries join keys by ``_key``, an integer that stands for a key's text and type (see
`dask_strata.run.key_ids`), so that ``"('x', 0)"`` and ``('x', 0)`` stay apart. Internal tables
that have one row for each transition have few and narrow columns, as they must fit into memory.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from dask_strata.run.key_ids import KEYS_TABLE
from dask_strata.run.key_prefix import KEY_PREFIX_MACROS
from dask_strata.run.own_tasks import OTHERS_TABLE
from dask_strata.schema import DERIVED, RECORDED

_DEPENDENCIES = re.compile(r"^-- depends on:((?:.*,\n--)*.*)$", re.MULTILINE)
_BY_KEY = re.compile(r"^-- by key:((?:.*,\n--)*.*)$", re.MULTILINE)
_ORDER = re.compile(r"^-- order: (.*)$", re.MULTILINE)

#: Internal tables that a finalised run has beside the public ones: answers read them, or tables
#: that are computed again as a whole while the run grows.
STORED = frozenset({
    "_attempt_numbers", "_bounds", "_definitions", "_dependents", "_disk_phases", "_file_uses",
    "_gc_pauses", "_held", "_io_attempts", "_job_ends", "_loop_blocks", "_other_executions",
    "_own_keys", "_pauses", "_places", "_queued", "_renewals", "_shuffle_barriers",
    "_shuffle_waits", "_skipped_files", "_task_clients", "_waits", "_worker_conditions",
    "_worker_connections", "_worker_executions", *DERIVED,
})  # fmt: skip


@dataclass(frozen=True)
class Definition:
    """The definition of a derived table.

    Attributes
    ----------
    name : str
        Name of the table.
    depends_on : frozenset of str
        Names of the tables that the query reads.
    sql : str
        The query, with its comments.
    by_key : frozenset of str
        Names of the tables of which a row needs only the rows of its own key.
    order : str or None
        Order of the rows, as SQL; None if the query has it.
    """

    name: str
    depends_on: frozenset[str]
    sql: str
    by_key: frozenset[str] = frozenset()
    order: str | None = None

    @property
    def ordered_sql(self) -> str:
        """The query for all rows in their order."""
        return self.sql if self.order is None else f"{self.sql}\norder by {self.order}"


def parse_definition(name: str, text: str) -> Definition:
    r"""Return the definition in the text of a ``.sql`` file.

    Raises
    ------
    ValueError
        The text has no line ``-- depends on:``, or more than one.

    Examples
    --------
    >>> sorted(parse_definition("pairs", "-- depends on: a,\n-- b\nfrom a, b").depends_on)
    ['a', 'b']
    """
    found = _DEPENDENCIES.findall(text)
    if len(found) != 1:
        raise ValueError(f"{name}.sql needs one line `-- depends on: …` and has {len(found)}.")
    depends_on = frozenset(re.findall(r"\w+", found[0]))
    by_key = frozenset(re.findall(r"\w+", " ".join(_BY_KEY.findall(text))))
    order = _ORDER.search(text)
    return Definition(name, depends_on, text, by_key, None if order is None else order[1])


def in_order(definitions: Collection[Definition], given: Collection[str]) -> dict[str, Definition]:
    """Return definitions by name, each after those that it depends on.

    Parameters
    ----------
    definitions : collection of Definition
        The definitions.
    given : collection of str
        Names of the other tables that definitions may depend on.

    Raises
    ------
    ValueError
        A definition depends on an unknown table, or on itself.
    """
    by_name = {definition.name: definition for definition in definitions}
    for definition in definitions:
        unknown = definition.depends_on - by_name.keys() - set(given)
        if unknown:
            raise ValueError(
                f"{definition.name}.sql depends on unknown tables: {', '.join(sorted(unknown))}."
            )
    sorter = TopologicalSorter(
        {name: sorted(by_name[name].depends_on & by_name.keys()) for name in sorted(by_name)}
    )
    try:
        return {name: by_name[name] for name in sorter.static_order()}
    except CycleError as error:
        names = " → ".join(error.args[1])
        raise ValueError(f"Derived tables depend on each other: {names}.") from error


@cache
def definitions() -> dict[str, Definition]:
    """Return the definitions of all derived tables by name, each after its dependencies."""
    files = sorted(Path(__file__).parent.glob("*.sql"))
    found = [parse_definition(path.stem, path.read_text(encoding="utf-8")) for path in files]
    return in_order(found, {*RECORDED, KEYS_TABLE, OTHERS_TABLE})


@cache
def versions() -> dict[str, str]:
    """Return the version of each definition; it changes with the query and its dependencies."""
    found: dict[str, str] = {}
    for name, definition in definitions().items():
        text = [definition.sql, *KEY_PREFIX_MACROS]
        text += [found[other] for other in sorted(definition.depends_on) if other in found]
        found[name] = hashlib.sha256("\0".join(text).encode()).hexdigest()[:16]
    return found


def with_dependencies(names: Collection[str], given: Collection[str] = ()) -> set[str]:
    """Return names of tables, and of all tables that these depend on, directly or not.

    Parameters
    ----------
    names : collection of str
        Names of tables; a recorded table depends on nothing.
    given : collection of str, optional
        Names of derived tables that are there, and need nothing.

    Examples
    --------
    >>> sorted(with_dependencies(["custom_metrics"]) & {"attempts", "reports", "shuffles"})
    ['attempts', 'reports']
    >>> sorted(with_dependencies(["custom_metrics"], ["attempts"]))
    ['attempts', 'custom_metrics', 'reports']
    """
    needed = set(names)
    for definition in reversed(list(definitions().values())):
        if definition.name in needed and definition.name not in given:
            needed |= definition.depends_on
    return needed
