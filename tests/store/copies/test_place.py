"""Places for runs: which are URLs, and what a user reads where one cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dask_strata.errors import StrataError, UsageError
from dask_strata.store.copies.place import RemotePlace, absolute, is_url, shown
from tests.cli.recorded import Script, Strata


@pytest.mark.parametrize(
    ("place", "url"),
    [
        ("runs", False),
        ("/data/runs", False),
        ("C:/runs", False),
        ("C:\\runs", False),
        ("file:///data/runs", False),
        ("s3:/bucket", False),
        ("s3://bucket/runs", True),
        ("abfs://container@account/runs", True),
        ("simplecache::s3://bucket", True),
        ("unknown://x", True),
    ],
)
def test_only_addresses_with_a_scheme_are_urls(place: str, *, url: bool) -> None:
    assert is_url(place) is url
    assert Path(absolute(place)).is_absolute() is not url


def test_a_file_url_is_a_folder() -> None:
    assert absolute("file:///data/runs") == "/data/runs"


def test_a_password_in_a_url_is_not_shown() -> None:
    assert shown("ftp://me:secret@host/runs") == "ftp://***@host/runs"
    with pytest.raises(StrataError) as caught:
        RemotePlace("ftp://me:secret@127.0.0.1:1/runs")
    assert "***@127.0.0.1" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["unknown://x/runs", "simplecache::s3://bucket/runs"])
def test_a_url_that_is_no_place_is_wrong_use(url: str) -> None:
    with pytest.raises(UsageError, match="no place for runs"):
        RemotePlace(url)


def test_without_the_library_nothing_starts(tmp_path: Path, script: Script, strata: Strata) -> None:
    """The error names the package; the script does not run, and no folder `s3:` appears."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "s3fs.py").write_text("raise ImportError('not installed')")
    script("open('ran', 'w').close()")
    env = {**os.environ, "PYTHONPATH": str(broken)}
    for command in (
        ["record", "-o", "s3://bucket/runs", "script.py"],
        ["show", "s3://bucket/runs/one"],
    ):
        done = strata(*command, env=env)
        assert done.returncode == 2, done.stderr
        assert "pip install s3fs" in done.stderr
        assert len(done.stderr.splitlines()) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"broken", "script.py"}


@pytest.mark.parametrize("command", [["compact"], ["import", "x", "--into"], ["import", "x", "-o"]])
def test_commands_that_change_a_run_refuse_a_url(
    command: list[str], tmp_path: Path, strata: Strata
) -> None:
    done = strata(*command, "s3://bucket/runs/one")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 2)
    assert "is a URL" in done.stderr
    assert not list(tmp_path.iterdir())
