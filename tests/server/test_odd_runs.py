"""The history server with odd runs: damaged, with odd names, or many without summaries."""

from __future__ import annotations

import asyncio
import html
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tornado.httpclient import AsyncHTTPClient
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application

from dask_strata.server.handlers import routes
from dask_strata.server.page import ServerContext, make_templates
from dask_strata.server.run_cache import RunCache
from dask_strata.server.sql import SqlProcesses
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


def test_a_list_that_is_being_read_delays_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand runs without summaries take minutes; a run is opened meanwhile."""
    small_run(tmp_path / "run")
    read = threading.Event()
    runs = RunCache(tmp_path)
    monkeypatch.setattr(runs, "rows", lambda: read.wait(60) and [])

    async def answer() -> str:
        with (
            ThreadPoolExecutor(2) as threads,
            ThreadPoolExecutor(1) as list_threads,
            ThreadPoolExecutor(1) as short_threads,
        ):
            context = ServerContext(
                runs=runs,
                hosts=frozenset(),
                token=None,
                cookie="c",
                threads=threads,
                list_threads=list_threads,
                short_threads=short_threads,
                sql=SqlProcesses(30, 30),
                templates=make_templates(),
            )
            listening = bind_sockets(0, "127.0.0.1")
            server = HTTPServer(Application(routes(context)))
            server.add_sockets(listening)
            url = f"http://127.0.0.1:{listening[0].getsockname()[1]}"
            the_list = asyncio.ensure_future(AsyncHTTPClient().fetch(url + "/"))
            try:
                page = await AsyncHTTPClient().fetch(f"{url}/runs/run/tables", request_timeout=20)
                assert not the_list.done()
            finally:
                read.set()
                await the_list
                server.stop()
                await server.close_all_connections()
            return page.body.decode()

    assert "tasks" in asyncio.run(answer())
