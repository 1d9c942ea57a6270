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


def test_a_scheme_may_be_in_capitals() -> None:
    assert absolute("MEMORY://Runs/A/") == "memory://Runs/A"
    assert RemotePlace("MEMORY://Runs/A/").url == "memory://Runs/A"


@pytest.mark.parametrize("text", ["s3://", "s3:///", "s3:/bucket/runs", "memory://", "GS://"])
def test_a_url_that_lacks_a_part_is_not_a_local_folder(text: str) -> None:
    """`pathlib.Path` makes the form with one slash."""
    for read in (absolute, RemotePlace):
        with pytest.raises(UsageError, match="neither a folder nor a whole URL"):
            read(text)


def test_names_are_removed_literally() -> None:
    place = RemotePlace("memory://a[b]/run")
    for name in ("parts/1", "parts/*", "segments/one.seg"):
        place.write(name, b"x")
    place.remove(["parts/*"])
    assert set(place.objects()) == {"parts/1", "segments/one.seg"}
    place.remove(["parts/1"])
    assert set(place.objects()) == {"segments/one.seg"}


def test_any_exception_of_a_library_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore raises a plain ValueError, for example."""
    pytest.importorskip("s3fs")
    for name, value in (("ENDPOINT_URL", "nonsense"), ("ACCESS_KEY_ID", "a")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with pytest.raises(StrataError, match="Invalid endpoint: nonsense"):
        RemotePlace("s3://bucket/runs").entries()


@pytest.mark.parametrize(
    "url",
    ["unknown://x/runs", "simplecache::s3://bucket/runs", "zip://runs::/tmp/a.zip"],
)
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


@pytest.mark.parametrize(
    "command",
    [
        ["compact"],
        ["import", "x", "--into"],
        ["import", "x", "-o"],
        ["fetch", "tcp://127.0.0.1:1", "-o"],
    ],
)
def test_commands_that_change_a_run_refuse_a_url(
    command: list[str], tmp_path: Path, strata: Strata
) -> None:
    done = strata(*command, "s3://bucket/runs/one")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 2)
    assert "is a URL" in done.stderr
    assert not list(tmp_path.iterdir())
