"""Find the tables that a query names, with DuckDB's own parser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

import duckdb

#: Queries whose tables are remembered: parsing one takes about 1 ms.
_REMEMBERED = 256

_WORD = re.compile(r"\w+")

#: Comments, the star of ``count(*)``, and queries without ``select``, which return all columns.
_COMMENT = re.compile(r"--[^\n]*")
_STAR = re.compile(r"\(\s*\*\s*\)?")
_FROM_FIRST = re.compile(r"(^|\(|\b(union|all|name|except|intersect|as))\s*from\b")
_KEY_WORDS = {
    "key", "key_type", "first_key", "first_key_type", "dependency", "dependency_type", "blame",
    "blame_type", "columns", "natural",
}  # fmt: skip


@lru_cache(_REMEMBERED)
def query_tables(query: str) -> frozenset[str]:
    """Return the tables that a query reads, in lower case.

    Comments, texts and names of columns do not count, nor do names that the query itself
    defines by ``with``. Where DuckDB cannot parse the query into a tree (``explain``,
    ``pivot``, an error of syntax), or the tree is too deep, every word of it counts: too many
    names are harmless.

    Parameters
    ----------
    query : str
        One statement; parameters (``?``, ``$1``) need no values.

    Examples
    --------
    >>> sorted(query_tables("with a as (from tasks) select workers from a join Steals using (key)"))
    ['steals', 'tasks']
    """
    try:
        tree = json.loads(
            _parser()
            .cursor()
            .execute("select json_serialize_sql(?::varchar)", [query])
            .fetchall()[0][0]
        )
        if tree["error"]:
            return words(query)
        return frozenset(_tables_of(tree["statements"], frozenset()))
    # A long chain of operators is a deep tree. DuckDB before 1.3 raises a RuntimeError for text
    # that is not valid Unicode.
    except (duckdb.Error, RuntimeError, RecursionError, UnicodeEncodeError):
        return words(query)


@lru_cache(_REMEMBERED)
def mentions_keys(query: str) -> bool:
    """Return whether a trusted query may read texts or types of keys, by its words or a star.

    >>> mentions_keys("select count(*), _key from attempts"), mentions_keys("from attempts")
    (False, True)
    """
    text = _STAR.sub("(", _COMMENT.sub("", query.lower()))
    return "*" in text or bool(_FROM_FIRST.search(text)) or bool(words(text) & _KEY_WORDS)


def words(query: str) -> frozenset[str]:
    """Return all words of a query in lower case, those of its comments and texts too."""
    return frozenset(_WORD.findall(query.lower()))


@cache
def _parser() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:", config={"autoload_known_extensions": "false", "threads": 1})


def _tables_of(node: Any, defined: frozenset[str]) -> Iterator[str]:
    """Yield the tables in a part of a syntax tree, except the names that ``with`` defines."""
    if isinstance(node, list):
        for part in node:
            yield from _tables_of(part, defined)
    elif isinstance(node, dict):
        for definition in node.get("cte_map", {}).get("map", ()):
            names = defined | {definition["key"].lower()}
            # A definition can name itself only if it is recursive.
            recursive = "RECURSIVE_CTE_NODE" in json.dumps(definition["value"])
            yield from _tables_of(definition["value"], names if recursive else defined)
            defined = names
        if node.get("type") == "BASE_TABLE":
            name = node["table_name"].lower()
            # With a schema in front, it is a table even if the query defines the same name.
            if name not in defined or node["schema_name"] or node["catalog_name"]:
                yield name
        yield from _tables_of([part for key, part in node.items() if key != "cte_map"], defined)
