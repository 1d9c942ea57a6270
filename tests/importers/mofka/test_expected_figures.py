"""Imported runs yield every figure that two other tools computed for the same files.

The queries are read from `docs/figures.md`, so that the tests cover exactly the documented ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from dask_strata import Run, open_run
from tests.support.shared_fixtures import FIXTURES, ROOT
from tests.support.synthetic import small_run

EXPECTED = FIXTURES / "expected.json"
_ABSENT = f"NOT TESTED: the shared fixtures lack {EXPECTED}"

#: Figures that a run cannot answer, each with its reason.
UNANSWERABLE: dict[str, str] = {}

#: Times have microseconds in SQL, and expected figures were rounded to them.
_TOLERANCE = 2e-6

_BLOCK = re.compile(r"^```(sql|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEAD = re.compile(r"(?:--|#) ([\w.]+(?:\([\w, ]+\))?): (.+)")
_COMMENT = {"sql": "--", "python": "#"}


@dataclass(frozen=True)
class Figure:
    """One figure of the page: its definition, and the query or expression that computes it."""

    path: str
    definition: str
    language: str
    query: str

    def compute(self, run: Run) -> pa.Table:
        """Return the result as a table."""
        if self.language == "sql":
            return run.sql(self.query).to_arrow()
        value = eval(self.query, {"run": run, "pd": pd})  # the page is part of this repository
        return pa.table({"value": [int(value)]})


def figures_of(page: str) -> Iterator[Figure]:
    """Yield the figures of the page; a query goes from its comment to the next blank line."""
    for language, block in _BLOCK.findall(page):
        for entry in block.strip().split("\n\n"):
            lines, mark = entry.splitlines(), _COMMENT[language]
            comment = [line for line in lines if line.startswith(mark)]
            head = _HEAD.match(comment[0]) if comment else None
            assert head, f"no figure is named in:\n{entry}"
            meaning = [head[2], *(line.removeprefix(mark).strip() for line in comment[1:])]
            query = "\n".join(line for line in lines if not line.startswith(mark))
            yield Figure(head[1], " ".join(meaning), language, query)


PAGE = list(figures_of((ROOT / "docs" / "figures.md").read_text(encoding="utf-8")))
FIGURES = {figure.path: figure for figure in PAGE}


def parts(expected: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values to compare, by dotted path.

    A mapping with a figure of its own (counts by state, by worker) is one value; any other mapping
    is split. So each leaf belongs to exactly one value.
    """
    inner = any(known.startswith(f"{path}.") for known in FIGURES)
    if isinstance(expected, dict) and expected and (inner or path not in FIGURES):
        for name, value in expected.items():
            yield from parts(value, f"{path}.{name}" if path else name)
    else:
        yield path, expected


def leaves(expected: Any) -> int:
    """Return the number of figures in a value."""
    if isinstance(expected, dict) and expected:
        return sum(leaves(value) for value in expected.values())
    return 1


def answer(run: Run, figure: Figure, expected: Any) -> Any:
    """Return the result of a figure in the form of the expected value: mapping, list or scalar."""
    table = figure.compute(run)
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    if isinstance(expected, dict):
        found = {first: list(rest) if len(rest) > 1 else rest[0] for first, *rest in rows}
        assert len(found) == len(rows), f"{figure.path}: several rows of the same name"
        return found
    if isinstance(expected, list):
        return [row[0] if len(row) == 1 else list(row) for row in rows]
    assert (len(rows), table.num_columns) == (1, 1), f"{figure.path}: one value was expected"
    return rows[0][0]


def same(found: Any, expected: Any) -> bool:
    """Return whether a result equals the expected value; all but integers have a tolerance."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            same(found[name], value) for name, value in expected.items()
        )
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(found, datetime):  # a time as it is in the file
        return abs(found.timestamp() - float(expected)) <= _TOLERANCE
    if isinstance(expected, float) and found is not None:
        return abs(float(found) - expected) <= _TOLERANCE
    return bool(found == expected)


def groups() -> list[Any]:
    """Return each folder with each group of its figures, as parameters of a test."""
    if not EXPECTED.exists():
        return [pytest.param("", "", marks=pytest.mark.skip(reason=_ABSENT), id="absent")]
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    return [
        pytest.param(folder, group, id=f"{folder.partition('/')[0]}-{number}-{group}")
        for number, (folder, figures) in enumerate(expected.items())
        for group in figures
    ]


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    """The expected figures, by folder."""
    if not EXPECTED.exists():
        pytest.skip(_ABSENT)
    return json.loads(EXPECTED.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Return a function that imports a folder of real files once, and opens it unaligned."""
    from dask_strata.importers.mofka.importer import find_files, import_files

    runs: dict[str, Run] = {}

    def get(folder: str) -> Run:
        if folder not in runs:
            result = import_files(
                find_files(FIXTURES / folder), tmp_path_factory.mktemp("runs"), name=folder
            )
            runs[folder] = open_run(result.path, align=False)
        return runs[folder]

    return get


@pytest.mark.parametrize(("folder", "group"), groups())
def test_figures(
    folder: str, group: str, expected: dict[str, Any], imported: Callable[[str], Run]
) -> None:
    """The query of every figure of a group returns the expected value."""
    wrong, compared = [], 0
    for path, value in parts({group: expected[folder][group]}):
        if path in UNANSWERABLE:
            continue
        if path not in FIGURES:
            wrong.append(f"{path}: docs/figures.md has no query for it")
            continue
        found = answer(imported(folder), FIGURES[path], value)
        compared += 1
        if not same(found, value):
            wrong.append(f"{path}: {found!r} instead of {value!r}")
    assert not wrong, "\n".join(wrong)
    assert compared, f"nothing of {group} was compared"


def test_each_worker_is_one_row_with_a_process_if_it_reported(
    expected: dict[str, Any], imported: Callable[[str], Run]
) -> None:
    """`workers` agrees with the figures: each declared worker once, silent ones without process."""
    by_folder = {
        folder: figures["workers"] for folder, figures in expected.items() if "workers" in figures
    }
    for folder, figures in by_folder.items():
        rows = imported(folder).sql("select worker, process from workers").to_arrow().to_pylist()
        assert len(rows) == figures["declared"], folder
        assert sorted(r["worker"] for r in rows if r["process"] is None) == figures["silent"], (
            folder
        )
    assert by_folder


def test_most_figures_are_answered_and_none_is_idle(expected: dict[str, Any]) -> None:
    """At least 95 of 100 expected figures have a query, and each query has such a figure."""
    every = [part for figures in expected.values() for part in parts(figures)]
    answered = sum(leaves(value) for path, value in every if path in FIGURES)
    total = sum(leaves(figures) for figures in expected.values())
    assert sum(leaves(value) for _, value in every) == total
    assert answered >= 0.95 * total > 400
    assert FIGURES.keys() == {path for path, _ in every} - UNANSWERABLE.keys()


def test_each_figure_is_defined_once_in_a_sentence() -> None:
    """The page has no figure twice, and none without words."""
    assert len(FIGURES) == len(PAGE) > 80
    assert not [f.path for f in PAGE if len(f.definition.split()) < 2 or not f.query]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A small run that was not imported."""
    return open_run(small_run(tmp_path_factory.mktemp("runs") / "r"))


@pytest.mark.parametrize("figure", PAGE, ids=lambda figure: figure.path)
def test_queries_work_on_recorded_runs(figure: Figure, recorded: Run) -> None:
    """Each query of the page also works on a recorded run."""
    table = figure.compute(recorded)
    assert 1 <= table.num_columns <= 4


def test_a_wrong_answer_is_noticed() -> None:
    """Integers are compared exactly, times and seconds to microseconds."""
    assert same({"a": [0.5, 1.0]}, {"a": [0.500001, 1.0]})
    assert not same({"a": [0.5, 1.0]}, {"a": [0.50001, 1.0]})
    assert not same({"a": 1, "b": 2}, {"a": 1})
    assert not same([1, 2], [1, 2, 3])
    assert not same(2312623914, 2312623913)
    assert not same(None, 0.0)
    assert same(None, None)
