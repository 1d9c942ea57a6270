"""The local folder in which a run is kept until it is uploaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dask_strata.config import read_settings
from dask_strata.recorder.upload import folder_of_session, session_spool, spool_folder


def test_a_spool_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    settings = read_settings({"runs": "s3://bucket/runs", "spool": str(tmp_path / "spool")})
    first, second = spool_folder(settings, "a-run"), spool_folder(settings, "a-run")
    assert first != second
    assert first.parent.stat().st_mode & 0o777 == 0o700
    assert first.parent.parent == tmp_path / "spool"


def test_the_runs_of_a_session_are_together_where_its_folder_exists(tmp_path: Path) -> None:
    """A scheduler elsewhere has its own spool, and finishes the upload itself."""
    settings = read_settings(
        {"runs": "s3://bucket/runs", "spool": str(tmp_path), "session": "0123456789abcdef"}
    )
    spool = session_spool(settings)
    here = replace(settings, spool=str(spool))
    assert folder_of_session(here) == spool
    assert spool_folder(here, "a-run") == spool / "a-run"
    spool.rmdir()
    assert folder_of_session(here) is None
    elsewhere = spool_folder(here, "a-run")
    assert elsewhere.parent.is_dir()
    assert tmp_path not in elsewhere.parents
    elsewhere.parent.rmdir()
