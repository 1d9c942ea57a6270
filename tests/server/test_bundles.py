"""The history server shows bundles as it shows folders."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.conftest import wait_until
from tests.support.bundles import copies, small_bundle


@pytest.mark.long
def test_a_server_of_bundles(tmp_path: Path) -> None:
    """List, run, page, story, SQL, comparison and downloads; then nothing is left."""
    runs, temporary = tmp_path / "runs", tmp_path / "temporary"
    runs.mkdir()
    temporary.mkdir()
    small_bundle(runs)  # beside the folder of the same run
    small_bundle(tmp_path, "other").rename(runs / "other.strata.zip")
    (runs / "damaged.strata.zip").write_bytes(b"PK damaged")
    command = [sys.executable, "-m", "dask_strata", "serve", str(runs), "--port", "0", "--no-token"]
    environment = {"TMPDIR": str(temporary), "PATH": "", "HOME": str(tmp_path)}
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=_paths() | environment
        ) as process,
        ended(process),
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+?:\d+", line)
        assert found, line

        def get(path: str, data: dict[str, str] | None = None) -> bytes:
            body = None if data is None else urlencode(data).encode()
            with urllib.request.urlopen(found[0] + path, body, timeout=120) as answer:
                return bytes(answer.read())

        listed = get("/").decode()
        for name in ("small-run", "small.strata.zip", "other.strata.zip", "damaged.strata.zip"):
            assert name in listed
        assert "cannot be read as a bundle" in listed
        assert copies(temporary) == []
        place = "/runs/small.strata.zip"
        wait_until(lambda: b"2 tasks" in get(place), what="the page")
        assert b"<!doctype html>" in get(f"{place}/page")
        assert b"a-1" in get(f"{place}/story?key=a-1")
        assert b"b-1" in get(f"{place}/sql", {"query": "select key from tasks where key = 'b-1'"})
        assert b"b-1" in get(f"{place}/sql", {"query": "select key from tasks where key = 'b-1'"})
        with tarfile.open(fileobj=io.BytesIO(get(f"{place}/run.tar"))) as archive:
            assert "small/run.json" in archive.getnames()
        assert get(f"{place}/export?to=bundle")[:2] == b"PK"
        assert len(copies(temporary)) == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert copies(temporary) == []


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill a process if the test fails before its end."""
    try:
        yield
    finally:
        process.kill()


def _paths() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(sys.path)}
