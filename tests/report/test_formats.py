"""The registry of output formats: each type of content has its formats, in one place."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from dask_strata.capture import TaskHandler
from dask_strata.capture.writers import FORMATS as HANDLER_FORMATS
from dask_strata.report.formats import CSV, format_of, formats_of, register, write
from dask_strata.report.rows import FORMATS


def test_tables_and_handlers_share_formats() -> None:
    """Tables and task handlers have their formats in order, and share the common ones."""
    assert FORMATS == ("table", "csv", "json", "parquet")
    assert HANDLER_FORMATS == ("txt", "json", "csv", "parquet", "df_csv")
    assert format_of(pa.Table, "csv") is format_of(TaskHandler, "csv") is CSV
    assert [f.name for f in formats_of(TaskHandler) if f.is_folder] == ["df_csv"]
    assert formats_of(int) == ()


@pytest.mark.parametrize("name", FORMATS)
def test_a_table_can_be_written_in_each_format(name: str, tmp_path: Path) -> None:
    """Each format of a table writes a file with the table's values."""
    target = tmp_path / f"out{format_of(pa.Table, name).suffix}"
    write(pa.table({"key": ["a-1"]}), name, target)
    assert b"a-1" in target.read_bytes()


def test_a_format_is_registered_once() -> None:
    """A second writer for the same type and name is an error, as is a name without a writer."""
    with pytest.raises(ValueError, match="already has a format csv"):
        register(pa.Table, CSV, lambda _table, _path: None)
    with pytest.raises(KeyError):
        write(pa.table({}), "xml", Path("unused"))
