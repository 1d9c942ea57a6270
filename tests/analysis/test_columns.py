"""Columns of numbers that are read in parts, on columns whose order and gaps are arbitrary."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_strata import open_run
from dask_strata.analysis.series.columns import Index, Names, columns, groups
from tests.support.synthetic import small_run

_NUMBERS = st.lists(st.integers(0, 60) | st.integers(0, 2**62), max_size=40, unique=True)


@given(_NUMBERS, st.lists(st.integers(0, 70), max_size=40))
def test_numbers_are_found_where_they_are(numbers, wanted) -> None:
    """An index returns the place of each number, with and without gaps between the numbers."""
    found = Index(np.array(numbers, np.int64)).find(np.array(wanted, np.int64))
    places = {number: i for i, number in enumerate(numbers)}
    assert found.tolist() == [places.get(number, -1) for number in wanted]


@given(st.lists(st.integers(0, 3), max_size=30).map(sorted), st.integers(1, 5))
def test_groups_continue_in_the_next_part(values, size) -> None:
    """Each value has all of its rows, whatever the parts in which they are read."""
    column = np.array(values, np.int64)
    parts = ({"x": column[i : i + size]} for i in range(0, len(column), size))
    found = [(value, rows["x"].tolist()) for value, rows in groups(parts, "x")]
    assert found == [(value, [value] * values.count(value)) for value in sorted(set(values))]


def test_a_query_without_rows_has_its_columns(tmp_path: Path) -> None:
    """Columns of numbers and of texts are there, and empty."""
    run = open_run(small_run(tmp_path / "r"))
    query = "select attempt, worker from attempts where attempt < 0"
    found = columns(run, query, names={"worker": Names()})
    assert {name: len(values) for name, values in found.items()} == {"attempt": 0, "worker": 0}


def test_a_query_in_parts_has_the_rows_of_the_whole(tmp_path: Path) -> None:
    """Texts have the numbers of their names."""
    run = open_run(small_run(tmp_path / "r"))
    query = "select attempt, worker from attempts order by attempt"
    workers = Names()
    found = columns(run, query, names={"worker": workers})
    expected = run.rows(query)
    assert found["attempt"].tolist() == [row["attempt"] for row in expected]
    assert [workers.names[i] for i in found["worker"]] == [row["worker"] for row in expected]
