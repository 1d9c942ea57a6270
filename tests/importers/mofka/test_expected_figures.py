"""Every figure that two other tools computed for real files comes out of the imported runs.

The queries are those of `docs/figures.md`: what users are told to ask is what is tested.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from dask_strata import Run, open_run
from tests.support.synthetic import small_run

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT.parent / "shared" / "fixtures"
EXPECTED = FIXTURES / "expected.json"
_ABSENT = f"no real files: {EXPECTED} is absent"

#: Figures that a run cannot answer, each with its reason.
UNANSWERABLE: dict[str, str] = {}

#: Times have microseconds in SQL, and expected figures were rounded to them.
_TOLERANCE = 2e-6

_BLOCK = re.compile(r"^```(sql|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEAD = re.compile(r"(?:--|#) ([\w.]+(?:\([\w, ]+\))?): (.+)")
_COMMENT = {"sql": "--", "python": "#"}


@dataclass(frozen=True)
class Figure:
    """One figure of the page: what it means and the query, or expression, that answers it."""

    path: str
    definition: str
    language: str
    query: str

    def ask(self, run: Run) -> pa.Table:
        """Return the answer as a table."""
        if self.language == "sql":
            return run.sql(self.query).to_arrow()
        value = eval(self.query, {"run": run, "pd": pd})  # the page is ours
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
    """Yield what is to be compared, by dotted path.

    A mapping for which there is a figure (counts by state, by worker) is compared at once;
    any other is gone into. So each leaf is in exactly one of them.
    """
    inner = any(known.startswith(f"{path}.") for known in FIGURES)
    if isinstance(expected, dict) and expected and (inner or path not in FIGURES):
        for name, value in expected.items():
            yield from parts(value, f"{path}.{name}" if path else name)
    else:
        yield path, expected


def leaves(expected: Any) -> int:
    """Return how many figures there are in a part."""
    if isinstance(expected, dict) and expected:
        return sum(leaves(value) for value in expected.values())
    return 1


def answer(run: Run, figure: Figure, expected: Any) -> Any:
    """Return the answer to a figure in the form of what is expected: mapping, list or value."""
    table = figure.ask(run)
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
    """Tell whether an answer is what is expected; only what is no integer has a tolerance."""
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
    """What is expected, by folder."""
    if not EXPECTED.exists():
        pytest.skip(_ABSENT)
    return json.loads(EXPECTED.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Import a folder of real files, once, and return the run with all times as in the files."""
    from dask_strata.importers.mofka.importer import find_files, import_files

    runs: dict[str, Run] = {}

    def get(folder: str) -> Run:
        if folder not in runs:
            made = import_files(
                find_files(FIXTURES / folder), tmp_path_factory.mktemp("runs"), name=folder
            )
            runs[folder] = open_run(made.path, align=False)
        return runs[folder]

    return get


@pytest.mark.parametrize(("folder", "group"), groups())
def test_figures(
    folder: str, group: str, expected: dict[str, Any], imported: Callable[[str], Run]
) -> None:
    """Every figure of a group is answered by its query, and equal to what is expected."""
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


def test_each_worker_is_one_row_and_on_record_if_it_reported(
    expected: dict[str, Any], imported: Callable[[str], Run]
) -> None:
    """The table of workers agrees with the figures: who is there once, and who was silent."""
    told = {
        folder: figures["workers"] for folder, figures in expected.items() if "workers" in figures
    }
    for folder, figures in told.items():
        rows = imported(folder).sql("select worker, process from workers").to_arrow().to_pylist()
        assert len(rows) == figures["declared"], folder
        assert sorted(r["worker"] for r in rows if r["process"] is None) == figures["silent"], (
            folder
        )
    assert told


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
def test_queries_can_be_asked_of_any_run(figure: Figure, recorded: Run) -> None:
    """Each query of the page is understood by a run that was recorded, too."""
    table = figure.ask(recorded)
    assert 1 <= table.num_columns <= 4


def test_a_wrong_answer_is_noticed() -> None:
    """What is compared is told apart: integers exactly, times and seconds to microseconds."""
    assert same({"a": [0.5, 1.0]}, {"a": [0.500001, 1.0]})
    assert not same({"a": [0.5, 1.0]}, {"a": [0.50001, 1.0]})
    assert not same({"a": 1, "b": 2}, {"a": 1})
    assert not same([1, 2], [1, 2, 3])
    assert not same(2312623914, 2312623913)
    assert not same(None, 0.0)
    assert same(None, None)
