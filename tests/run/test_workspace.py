"""Derived tables use memory, then disk, then more memory; then a clear error follows."""

import tempfile
from pathlib import Path

import pytest

from dask_strata.errors import StrataError
from dask_strata.run.workspace import Workspace

#: More than 64 MiB of values that cannot be compressed.
LARGE = (
    "create or replace temp table t as select range as i, md5(range::text) as h from range(2000000)"
)


def folders(place: Path) -> list[Path]:
    return list(place.glob("dask-strata-*"))


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_data_that_exceeds_memory_is_in_a_private_folder_that_close_removes(place):
    workspace = Workspace(32 << 20)
    workspace.connection.execute("set threads = 2")  # each thread needs memory of its own
    workspace.do(lambda: workspace.connection.execute(LARGE))
    (folder,) = folders(place)
    assert folder.stat().st_mode & 0o077 == 0
    assert sum(f.stat().st_size for f in folder.iterdir()) > 0
    query = "select count(*), count(distinct h) from t"
    found = workspace.do(lambda: workspace.connection.execute(query).fetchone())
    assert found == (2_000_000, 2_000_000)
    workspace.close()
    assert folders(place) == []


def test_the_folder_is_removed_without_close(place):
    workspace = Workspace()
    assert folders(place)
    del workspace
    assert folders(place) == []


def test_without_a_folder_for_temporary_files_memory_is_used(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/proc/there-is-no-such-folder")
    workspace = Workspace(1 << 20)
    workspace.do(lambda: workspace.connection.execute(LARGE))
    assert workspace.connection.execute("select count(*) from t").fetchone() == (2_000_000,)
    workspace.close()


def test_where_the_disk_is_too_small_more_memory_is_taken(place):
    workspace = Workspace(16 << 20)
    workspace.connection.execute("set max_temp_directory_size = '1MB'")
    workspace.do(lambda: workspace.connection.execute(LARGE))
    assert workspace.connection.execute("select count(*) from t").fetchone() == (2_000_000,)
    workspace.close()


def test_without_memory_and_disk_the_error_has_advice(place, monkeypatch):
    monkeypatch.setattr("dask_strata.run.workspace._physical_bytes", lambda: 16 << 20)
    workspace = Workspace(16 << 20)
    workspace.connection.execute("set max_temp_directory_size = '1MB'")
    with pytest.raises(
        StrataError, match=r"needs more than [0-9.]+ GiB of memory, the most that it may use"
    ) as caught:
        workspace.do(lambda: workspace.connection.execute(LARGE))
    assert "TMPDIR" in caught.value.hint
    workspace.close()
