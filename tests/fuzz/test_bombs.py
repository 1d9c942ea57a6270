"""Hostile runs that are small on disk, but large, slow or malformed for a reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dask_strata import open_run
from dask_strata.errors import StrataError
from dask_strata.store.bulk_writer import BulkRun
from dask_strata.store.compact import compact
from dask_strata.store.manifest import Manifest
from tests.fuzz.child import MEMORY, SECONDS, look_in_child
from tests.fuzz.hostile import HARMS, harmed

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Results of a process with limits that opens all hostile runs in turn."""
    folder = tmp_path_factory.mktemp("runs")
    runs = {name: harmed(folder, name) for name in HARMS}
    return dict(zip(runs, look_in_child(*runs.values(), timeout=400), strict=True))


@pytest.mark.timeout(450)
@pytest.mark.parametrize("name", HARMS)
def test_a_hostile_run_is_reported_and_its_other_rows_are_read(
    outcomes: dict[str, dict[str, Any]], name: str
) -> None:
    """It takes little memory and time, `check` reports it, and the other rows are read."""
    found = outcomes[name]
    assert "error" not in found, found
    assert found["missing"], found
    assert found["memory"] < MEMORY
    assert found["seconds"] < SECONDS * 6  # of CPU time: at most 10 s on an idle machine
    if "damaged" not in name:
        assert found["tasks"] >= 2


@pytest.mark.release
def test_segments_that_are_too_large_are_not_deleted(tmp_path: Path) -> None:
    """Compaction refuses a run that exceeds the memory limit, and changes nothing."""
    run = harmed(tmp_path, "has_the_same_row_again_and_again")
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    with pytest.raises(StrataError, match="too much memory"):
        compact(run)
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before


def test_values_of_an_imported_run_that_are_out_of_range_are_reported(tmp_path: Path) -> None:
    """Times out of range in an imported run are null, and `check` reports their number."""
    bulk = BulkRun(tmp_path / "runs")
    bulk.write_rows("scheduler_transitions", [{"key": "k", "time": t} for t in (1, (1 << 62) + 1)])
    run = bulk.finish(Manifest("0a1b2c3d", "n", 0, "0", imported_from="elsewhere"))
    opened = open_run(run)
    assert opened["scheduler_transitions"].to_arrow()["time"].null_count == 1
    found = [f.text for f in opened.check().missing]
    assert any(text.startswith("1 scheduler_transitions: values") for text in found), found
