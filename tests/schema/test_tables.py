"""Definitions of tables: complete, consistent and free of repeated names."""

from __future__ import annotations

from typing import get_args

import pytest

from dask_strata.schema import DERIVED, RECORDED, TABLES
from dask_strata.schema.columns import Kind, Sensitivity, Table


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_each_table_and_column_is_defined_completely(table: Table) -> None:
    """Each column has a meaning, a known kind and sensitivity, and a name of its own."""
    columns = table.all_columns
    assert len({column.name for column in columns}) == len(columns)
    assert table.row
    assert table.columns
    for column in columns:
        assert column.meaning, column.name
        assert column.kind in get_args(Kind)
        assert column.sensitivity in get_args(Sensitivity)


def test_each_table_is_either_recorded_or_derived() -> None:
    """Recorded tables come first, derived ones after them, and no other table exists."""
    assert [*RECORDED, *DERIVED] == list(TABLES)


@pytest.mark.parametrize("table", RECORDED.values(), ids=list(RECORDED))
def test_recorded_rows_contain_their_process(table: Table) -> None:
    """A recorded row leads to its process; rows that have an order contain it, too."""
    names = [column.name for column in table.all_columns]
    assert names[-2:] == ["process", "seq"] if table.events else names[-1] == "process"


def test_an_unknown_column_is_a_key_error() -> None:
    """A table returns its columns by name, those that it shares with others too."""
    assert TABLES["functions"].column("seq").kind == "int"
    with pytest.raises(KeyError):
        TABLES["functions"].column("no_such_column")
