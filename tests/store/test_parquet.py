"""Parquet of a run: a damaged file costs its own table only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from dask_strata import open_run
from dask_strata.store.compact import compact
from tests.support.synthetic import small_run

if TYPE_CHECKING:
    import pytest


def test_damaged_parquet_is_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    """A Parquet file that cannot be read costs its own table, and `check` names the table."""
    folder = small_run(tmp_path / "r")
    compact(folder)
    path = folder / "parquet" / "worker_events" / "part-0.parquet"
    path.write_bytes(path.read_bytes()[:-30])
    run = open_run(folder)
    assert len(run["scheduler_transitions"]) == 6
    assert len(run["worker_events"]) == 0
    assert any("worker_events" in f.text for f in run.check().missing)


def test_parquet_with_a_duplicate_column_costs_its_own_table(tmp_path: Path) -> None:
    """`check` names the table as unreadable, and the others are read."""
    folder = small_run(tmp_path / "r")
    compact(folder)
    path = folder / "parquet" / "worker_events" / "part-0.parquet"
    table = pq.read_table(path)
    pq.write_table(table.append_column("action", table["action"]), path)
    run = open_run(folder)
    assert len(run["scheduler_transitions"]) == 6
    assert any("worker_events" in f.text for f in run.check().missing)


def test_arrow_reads_without_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow gets files of its own: its threads release Python's ones late, and abort at an exit."""
    folder = small_run(tmp_path / "r")
    compact(folder)
    sources = []
    for name in ("ParquetFile", "read_metadata"):
        original = getattr(pq, name)

        def noted(source: Any, *args: Any, original: Any = original, **options: Any) -> Any:
            sources.append(source)
            return original(source, *args, **options)

        monkeypatch.setattr(pq, name, noted)
    assert len(open_run(folder)["scheduler_transitions"]) == 6
    assert len(sources) >= 3
    assert {type(source) for source in sources} == {pa.OSFile}
