"""The history server with runs that are damaged or have odd names."""

from __future__ import annotations

import html
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.test_serve import Server
from tests.support.synthetic import small_run

#: A file name that is no UTF-8, and its address.
LATIN = os.fsdecode(b"2026-01-01-caf\xe9")
LATIN_ADDRESS = "/runs/2026-01-01-caf%E9"
DAMAGED = "2026-01-02-damaged"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the two runs."""
    runs = tmp_path_factory.mktemp("odd") / "runs"
    runs.mkdir()
    try:
        small_run(runs / LATIN)
    except OSError:
        pytest.skip("the file system has names in UTF-8 only")
    small_run(runs / DAMAGED)
    Path(runs / DAMAGED / "run.json").write_text("{", encoding="ascii")
    command = [sys.executable, "-m", "dask_strata", "serve", str(runs), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r"(http://\S+?:\d+)/\?token=(\S+)", process.stdout.readline())
    assert found
    yield Server(found[1], process, found[2])
    process.send_signal(signal.SIGINT)
    process.wait(30)


def test_a_run_whose_name_is_no_utf_8_is_listed_and_opens(server: Server) -> None:
    """It hides no other run, and each of its pages has its address."""
    page = server.get("/")
    assert page.status == 200
    assert f'href="{LATIN_ADDRESS}"' in page.text
    assert f'href="/runs/{DAMAGED}"' in page.text
    for path in ("/page", "/state", "/tables", "/tables/tasks", "/story?key=a-1", "/run.tar"):
        assert server.get(LATIN_ADDRESS + path).status == 200, path
    links = re.findall(r'href="(/runs[^"]*)"', server.get(f"{LATIN_ADDRESS}/tables/tasks").text)
    assert {server.get(html.unescape(each)).status for each in links} == {200}
    assert server.get("/runs/caf%E9").status == 404


def test_a_damaged_run_has_the_advice_for_it(server: Server) -> None:
    """It is there, so the advice for a run that was removed would mislead."""
    page = server.get(f"/runs/{DAMAGED}/page").text
    assert "is damaged" in page
    assert "restore run.json from a copy" in page
    assert "moved or removed" not in page
    assert "moved or removed" in server.get("/runs/nope").text


def test_a_part_of_a_key_has_the_keys_that_contain_it(server: Server) -> None:
    """Instead of the advice to search for it."""
    page = server.get(f"{LATIN_ADDRESS}/story?key=a-")
    assert page.status == 404
    assert "Did you mean a-1?" in page.text
