"""The parts of a comparison as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dask_strata.errors import UsageError

if TYPE_CHECKING:
    from dask_strata.analysis.compare.compare import Comparison

_TEXT, _NUMBER, _WHOLE = pa.string(), pa.float64(), pa.int64()
_TEXTS, _NUMBERS = pa.list_(_TEXT), pa.list_(_NUMBER)

_GROUPS = {"first": _TEXT, "second": _TEXT}

_SCHEMAS: dict[str, dict[str, pa.DataType]] = {
    "effects": {
        **_GROUPS,
        "measure": _TEXT,
        "name": _TEXT,
        "unit": _TEXT,
        "first_median": _NUMBER,
        "second_median": _NUMBER,
        "difference": _NUMBER,
        "ratio": _NUMBER,
        "low": _NUMBER,
        "high": _NUMBER,
        "coverage": _NUMBER,
        "p": _NUMBER,
        "adjusted_p": _NUMBER,
        "detectable": _NUMBER,
        "verdict": _TEXT,
        "first_values": _NUMBERS,
        "second_values": _NUMBERS,
    },
    "parts": {
        **_GROUPS,
        "cause": _TEXT,
        "prefix": _TEXT,
        "occupant": _TEXT,
        "place": _TEXT,
        "first_seconds": _NUMBER,
        "second_seconds": _NUMBER,
        "difference_seconds": _NUMBER,
    },
    "facts": {
        "kind": _TEXT,
        "name": _TEXT,
        "expected": pa.bool_(),
        "groups": _TEXTS,
        "values": pa.list_(_TEXTS),
    },
    "prefixes": {
        "prefix": _TEXT,
        "change": _TEXT,
        "groups": _TEXTS,
        "least": _NUMBERS,
        "most": _NUMBERS,
    },
    "spoiled": {"group": _TEXT, "run": _TEXT, "reasons": _TEXTS, "excluded": pa.bool_()},
    "spreads": {
        "group": _TEXT,
        "measure": _TEXT,
        "name": _TEXT,
        "unit": _TEXT,
        "median": _NUMBER,
        "least": _NUMBER,
        "most": _NUMBER,
        "relative": _NUMBER,
        "runs": _TEXTS,
        "values": _NUMBERS,
    },
    "explained": {"group": _TEXT, "prefix": _TEXT, "by": _TEXT, "share": _NUMBER, "n": _WHOLE},
}


def table_of(comparison: Comparison, name: str) -> pa.Table:
    """Return one part of a comparison as a table.

    Parameters
    ----------
    comparison : Comparison
        The comparison.
    name : str
        Name of the table, see `TABLES`.

    Raises
    ------
    UsageError
        There is no such table.
    """
    if name not in _ROWS:
        raise UsageError(f"A comparison has no table {name}.", hint=f"Tables: {', '.join(_ROWS)}")
    schema = pa.schema(list(_SCHEMAS[name].items()))
    return pa.Table.from_pylist(list(_ROWS[name](comparison)), schema=schema)


def _effects(comparison: Comparison) -> Iterator[dict[str, Any]]:
    for contrast in comparison.contrasts:
        for effect in contrast.effects:
            yield {
                **vars(effect),
                "first": contrast.first.name,
                "second": contrast.second.name,
                "first_median": effect.medians[0],
                "second_median": effect.medians[1],
                "first_values": effect.first,
                "second_values": effect.second,
            }


def _parts(comparison: Comparison) -> Iterator[dict[str, Any]]:
    for contrast in comparison.contrasts:
        for part in contrast.split.parts:
            yield {
                "first": contrast.first.name,
                "second": contrast.second.name,
                **vars(part),
                "difference_seconds": part.difference_seconds,
            }


def _facts(comparison: Comparison) -> Iterator[dict[str, Any]]:
    groups = [group.name for group in comparison.groups]
    for difference in comparison.fairness.differences:
        yield {**vars(difference), "groups": groups}


def _prefixes(comparison: Comparison) -> Iterator[dict[str, Any]]:
    groups = [group.name for group in comparison.groups]
    for each in comparison.fairness.prefixes:
        spans = [(None, None) if span is None else span for span in each.tasks]
        yield {
            "prefix": each.prefix,
            "change": each.change,
            "groups": groups,
            "least": [None if least is None else float(least) for least, _ in spans],
            "most": [None if most is None else float(most) for _, most in spans],
        }


def _spoiled(comparison: Comparison) -> Iterator[dict[str, Any]]:
    yield from (dict(vars(each)) for each in comparison.fairness.spoiled)


def _spreads(comparison: Comparison) -> Iterator[dict[str, Any]]:
    runs = {group.name: [run.name for run in group.runs] for group in comparison.groups}
    for variability in comparison.variability:
        for spread in variability.spreads:
            yield {
                **vars(spread),
                "group": variability.group,
                "runs": runs[variability.group],
            }


def _explained(comparison: Comparison) -> Iterator[dict[str, Any]]:
    for variability in comparison.variability:
        for each in variability.explained:
            yield {"group": variability.group, **vars(each)}


_ROWS: dict[str, Callable[[Comparison], Iterator[dict[str, Any]]]] = {
    "effects": _effects,
    "parts": _parts,
    "facts": _facts,
    "prefixes": _prefixes,
    "spoiled": _spoiled,
    "spreads": _spreads,
    "explained": _explained,
}

#: Names of the tables.
TABLES = tuple(_ROWS)
