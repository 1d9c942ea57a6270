"""Derived tables: one ``.sql`` file for each, a query over recorded and other derived tables.

The head of a file is SQL comments: a sentence on the rows, and a line ``-- depends on:`` with all
tables that the query names. The list continues on the next line after a comma at the end of one.
Files whose names begin with an underscore are internal tables.

Queries join keys by ``_key``, an integer that stands for a key's text and type (see
`dask_strata.run.key_ids`), so that ``"('x', 0)"`` and ``('x', 0)`` stay apart. Internal tables
that have one row for each transition have few and narrow columns, as they must fit into memory.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from dask_strata.run.key_ids import KEYS_TABLE
from dask_strata.run.own_tasks import OTHERS_TABLE
from dask_strata.schema import RECORDED

_DEPENDENCIES = re.compile(r"^-- depends on:((?:.*,\n--)*.*)$", re.MULTILINE)


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
    """

    name: str
    depends_on: frozenset[str]
    sql: str


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
    return Definition(name, frozenset(re.findall(r"\w+", found[0])), text)


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


def with_dependencies(names: Collection[str]) -> set[str]:
    """Return names of tables, and of all tables that these depend on, directly or not.

    Parameters
    ----------
    names : collection of str
        Names of tables; a recorded table depends on nothing.

    Examples
    --------
    >>> sorted(with_dependencies(["custom_metrics"]) & {"attempts", "reports", "shuffles"})
    ['attempts', 'reports']
    """
    needed = set(names)
    for definition in reversed(list(definitions().values())):
        if definition.name in needed:
            needed |= definition.depends_on
    return needed
