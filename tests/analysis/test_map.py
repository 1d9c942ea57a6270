"""The metadata map of a synthetic run."""

from __future__ import annotations

from pathlib import Path

from dask_strata import open_run
from dask_strata.analysis.map import metadata_map
from dask_strata.schema import TABLES
from tests.support.synthetic import small_run


def test_every_table_is_in_a_cell_of_the_map_or_about_the_record(tmp_path: Path) -> None:
    """The map has all tables but those about the record itself and about imports."""
    shown = {
        name for cell in metadata_map(open_run(small_run(tmp_path / "r"))) for name in cell.rows
    }
    assert {n for n, t in TABLES.items() if t.layer != "record" and not t.imported} == shown
