"""Runs that are small on disk and would be large, slow or odd when read."""

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


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What a process with limits made of all of them, one after the other."""
    folder = tmp_path_factory.mktemp("runs")
    runs = {name: harmed(folder, name) for name in HARMS}
    return dict(zip(runs, look_in_child(*runs.values(), timeout=400), strict=True))


@pytest.mark.timeout(450)
@pytest.mark.parametrize("name", HARMS)
def test_what_means_no_good_is_named_and_hides_nothing(
    outcomes: dict[str, dict[str, Any]], name: str
) -> None:
    """It takes neither much memory nor time, is told of, and the other rows are there."""
    found = outcomes[name]
    assert "error" not in found, found
    assert found["missing"], found
    assert found["memory"] < MEMORY
    assert found["seconds"] < SECONDS * 6  # of CPU: a promise of 10 s on a machine that is free
    if "damaged" not in name:
        assert found["tasks"] >= 2


def test_what_is_too_large_to_be_read_is_not_deleted(tmp_path: Path) -> None:
    """Compaction refuses a run of which it cannot read all for its size, and changes nothing."""
    run = harmed(tmp_path, "has_the_same_row_again_and_again")
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    with pytest.raises(StrataError, match="too much memory"):
        compact(run)
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before


def test_values_of_an_imported_run_that_cannot_be_are_told_of(tmp_path: Path) -> None:
    """Times beyond all bounds in Parquet of an imported run are null, and check says how many."""
    bulk = BulkRun(tmp_path / "runs")
    bulk.write_rows("scheduler_transitions", [{"key": "k", "time": t} for t in (1, (1 << 62) + 1)])
    run = bulk.finish(Manifest("0a1b2c3d", "n", 0, "0", imported_from="elsewhere"))
    opened = open_run(run)
    assert opened["scheduler_transitions"].to_arrow()["time"].null_count == 1
    said = [f.text for f in opened.check().missing]
    assert any(text.startswith("1 scheduler_transitions: values") for text in said), said
