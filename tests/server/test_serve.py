"""The history server over HTTP: requests of browsers, and hostile ones."""

from __future__ import annotations

import asyncio
import html
import http.client
import io
import json
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

import pyarrow.parquet as pq
import pytest
from distributed import Client
from tornado.httpclient import AsyncHTTPClient
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application

import dask_strata
from dask_strata import Run, open_run
from dask_strata.report.page.page import make_page
from dask_strata.server.handlers import routes
from dask_strata.server.page import ServerContext, make_templates
from dask_strata.server.pages import run_page
from dask_strata.server.run_cache import RunCache
from tests.conftest import wait_until

#: Runs a script, or reverses a line, unless the page shows it as text.
HOSTILE = "<img src=x onerror=alert(1)>\"'</script>\u202e&amp;"


@dataclass
class Answer:
    """A response."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        """The page."""
        return self.body.decode()


@dataclass
class Server:
    """A running server."""

    url: str
    process: subprocess.Popen[str]
    token: str

    def get(self, path: str, data: bytes | None = None, **headers: str) -> Answer:
        """Send a request, with the token unless another header `Authorization` is given."""
        headers = {"Authorization": f"token {self.token}"} | headers
        request = urllib.request.Request(self.url + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return Answer(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.headers, error.read())

    def ask(self, run: str, query: str) -> Answer:
        """Send a query in SQL."""
        return self.get(f"/runs/{run}/sql", urlencode({"query": query}).encode())


def policy_of(page: Answer) -> dict[str, set[str]]:
    """Return the content security policy in a page, as sources by directive."""
    found = re.search(r'Content-Security-Policy" content="([^"]*)"', page.text)
    assert found
    parts = (part.split() for part in html.unescape(found[1]).split(";"))
    return {name: set(sources) for name, *sources in parts}


def fail(message: str) -> None:
    """Fail with a message."""
    raise ValueError(message)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: one with a failed task and odd texts, and one more."""
    runs = tmp_path_factory.mktemp("serve") / "runs"
    with Client(n_workers=1, threads_per_worker=2, dashboard_address=":0") as client:
        with dask_strata.record(runs, client=client, name=HOSTILE):
            futures = client.map(abs, range(20), key=[f"abs-{HOSTILE}-{i}" for i in range(20)])
            client.gather(futures)
            client.gather(client.submit(fail, HOSTILE, key="fails"), errors="skip")
            del futures
        with dask_strata.record(runs, client=client, name="second"):
            client.submit(sum, [1, 2]).result()
    return runs


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., Server]]:
    """Start servers, which are stopped after the tests."""
    started: list[subprocess.Popen[str]] = []

    def start(runs: Path, *arguments: str) -> Server:
        command = [sys.executable, "-m", "dask_strata", "serve", str(runs), "--port", "0"]
        process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"(http://\S+?:\d+)/(?:\?token=(\S+))?", line)
        assert found, line
        return Server(found[1].replace("0.0.0.0", "127.0.0.1"), process, found[2] or "")

    yield start
    for process in started:
        process.send_signal(signal.SIGINT)
        process.wait(30)


@pytest.fixture(scope="module")
def server(folder: Path, serve: Callable[..., Server]) -> Server:
    """Return a server of the two runs."""
    return serve(folder)


@pytest.fixture(scope="module")
def runs(folder: Path) -> list[Run]:
    """Both runs."""
    return [open_run(path) for path in sorted(folder.iterdir())]


def test_the_list_has_each_run(server: Server, runs: list[Run]) -> None:
    """The newest is first, each with its numbers and a link; foreign text stays text."""
    page = server.get("/")
    assert page.status == 200
    places = [page.text.index(f'href="/runs/{quote(run.path.name)}"') for run in runs[::-1]]
    assert places == sorted(places)
    assert "<img" not in page.text
    assert "&lt;img" in page.text
    assert "\\u202e" in page.text
    part = server.get("/?part=list")
    assert part.text.strip().startswith('<div id="list"')
    mark = re.findall(r'data-mark="(\w+)"', part.text)[0]
    assert (server.get(f"/?part=list&mark={mark}").status, server.get("/?mark=x").status) == (
        204,
        200,
    )


def test_every_page_of_a_run(server: Server, runs: list[Run]) -> None:
    """Headline, page, state, story, SQL and comparison exist, and no foreign script is in them."""
    first, second = (run.path.name for run in runs)
    key = quote(f"abs-{HOSTILE}-3")
    paths = [
        f"/runs/{first}/tables",
        f"/runs/{first}/story?key={key}",
        f"/runs/{first}/story?key=fails",
        f"/runs/{first}/sql",
        f"/compare?run={first}&run={second}",
    ]
    for path in paths:
        page = server.get(path)
        assert page.status == 200, page.text
        assert "<img" not in page.text
        assert page.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert "unsafe" not in page.headers["Content-Security-Policy"]
    assert "ValueError" in server.get(paths[2]).text
    compared = server.get(paths[4]).text
    assert "B takes" in compared
    assert "With one run a side, noise is not known." in compared
    state = json.loads(server.get(f"/runs/{first}/state").text)
    assert state["state"] == "complete"
    alone = server.get(f"/runs/{first}/page")
    page = server.get(f"/runs/{first}")
    for each in (alone, page):
        assert each.status == 200
        assert each.headers["Content-Security-Policy"] == "frame-ancestors 'self'"
        assert "<img" not in each.text
        assert "21 tasks" in each.text
    assert policy_of(page).keys() == policy_of(alone).keys() | {"connect-src"}
    assert policy_of(page)["connect-src"] == {"'self'"}
    for name, sources in policy_of(alone).items():
        widened = name in {"script-src", "style-src", "form-action"}
        own = sources - {"'none'"} if widened else sources
        assert policy_of(page)[name] == (own | {"'self'"} if widened else own)
    assert policy_of(page)["default-src"] == {"'none'"}
    assert 'id="strata-bar"' in page.text
    assert "strata-bar" not in alone.text
    assert "<iframe" not in page.text


def test_a_query_is_answered(server: Server, runs: list[Run]) -> None:
    """The answer is a table, of at most 1,000 rows."""
    name = runs[0].path.name
    page = server.ask(name, "select count(*) as n, 'a<b' as odd from tasks")
    assert page.status == 200
    assert '<td class="n">21</td><td>a&lt;b</td>' in page.text
    page = server.ask(name, "select * from range(5000000)")
    assert page.text.count("<tr>") == 1001
    assert "the first 1,000 rows" in page.text
    assert server.ask(name, "describe tasks").status == 200


@pytest.mark.parametrize(
    "query",
    [
        "drop table tasks",
        "select * from read_csv('/etc/passwd')",
        "copy tasks to '/tmp/x.csv'",
        "select <script>alert(1)</script>",
        "select 1; select 2",
        "",
    ],
)
def test_a_query_that_does_more_than_read_is_refused(
    server: Server, runs: list[Run], query: str
) -> None:
    """The page states the reason."""
    page = server.ask(runs[0].path.name, query)
    assert page.status == 400
    assert "SQL" in page.text
    assert "<script>alert" not in page.text
    assert "root:" not in page.text


def test_huge_requests_are_refused(server: Server, runs: list[Run]) -> None:
    """The page states that a query or an address is too long."""
    name = runs[0].path.name
    page = server.ask(name, "select " + "1," * 50_000 + "1")
    assert (page.status, "too long" in page.text) == (413, True)
    page = server.get("/runs/" + "x" * 30_000)
    assert (page.status, "too long" in page.text) == (414, True)


def test_tables_and_run_can_be_downloaded(server: Server, runs: list[Run], tmp_path: Path) -> None:
    """Each format holds the same rows, and the archive is a run."""
    name = runs[0].path.name
    base = f"/runs/{name}/tables/scheduler_transitions"
    n = len(runs[0].scheduler_transitions)
    assert len(json.loads(server.get(f"{base}.json").text)) == n
    table = pq.read_table(io.BytesIO(server.get(f"{base}.parquet").body))
    assert len(table) == n
    assert server.get(f"{base}.csv").text.splitlines()[0].split(",") == table.column_names
    with tarfile.open(fileobj=io.BytesIO(server.get(f"/runs/{name}/run.tar").body)) as archive:
        archive.extractall(tmp_path)  # this server made it
    copy = open_run(tmp_path / name)
    assert copy.check().ok
    assert len(copy.scheduler_transitions) == n


@pytest.mark.parametrize(
    "path",
    [
        "/runs/..%2f..%2fetc",
        "/runs/%2e%2e",
        "/runs/../../../etc/passwd",
        "/runs/no-such-run",
        "/runs/no-such-run/page",
        "/runs/no-such-run/state",
        "/runs/no-such-run/run.tar",
        "/runs/%00",
        "/runs/%ff%fe",
        "/assets/../app.py",
        "/assets/%2e%2e/app.py",
        "/no/such/page",
        "/compare?run=no-such-run&run=other",
    ],
)
def test_unknown_addresses_have_an_error_page(server: Server, path: str) -> None:
    """No address leads out of the folder, and none shows a traceback."""
    page = server.get(path)
    assert page.status in (400, 404)
    assert "<h1>" in page.text
    assert "Traceback" not in page.text


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("story", 500, "No key was given"),
        ("story?key=no-such-key", 404, "no-such-key"),
        ("story?key=" + quote("<script>"), 404, "&lt;script&gt;"),
        ("tables/no_such_table.csv", 404, "no page at this address"),
        ("tables/tasks.exe", 404, "no page at this address"),
    ],
)
def test_wrong_requests_about_a_run(
    server: Server, runs: list[Run], path: str, status: int, message: str
) -> None:
    """Each has a page with the reason."""
    page = server.get(f"/runs/{runs[0].path.name}/{path}")
    assert page.status == (400 if status == 500 else status)
    assert message in page.text


def test_a_run_that_is_removed_while_it_is_open(
    folder: Path, runs: list[Run], serve: Callable[..., Server], tmp_path: Path
) -> None:
    """Its pages state that there is no such run, and the list still works."""
    shutil.copytree(runs[0].path, tmp_path / "runs" / "gone")
    server = serve(tmp_path / "runs")
    assert server.get("/runs/gone").status == 200
    shutil.rmtree(tmp_path / "runs" / "gone")
    for path in ("", "/page", "/state", "/story?key=fails", "/sql", "/run.tar"):
        page = server.get(f"/runs/gone{path}")
        assert (page.status, "gone" in page.text) == (404, True), path
    assert server.get("/").status == 200


def test_a_run_that_cannot_be_read_is_in_the_list_with_its_problem(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    """The list still shows the other runs."""
    bad = tmp_path / "runs" / "bad"
    bad.mkdir(parents=True)
    (bad / "run.json").write_text("{")
    server = serve(tmp_path / "runs")
    page = server.get("/")
    assert page.status == 200
    assert 'class="bad"' in page.text
    assert server.get("/runs/bad").status == 404


@pytest.mark.long
def test_a_live_run_updates(serve: Callable[..., Server], tmp_path: Path) -> None:
    """While a run is recorded its state follows the record, and is complete at the end."""
    (tmp_path / "runs").mkdir()
    server = serve(tmp_path / "runs")
    with Client(n_workers=1, threads_per_worker=1, dashboard_address=":0") as client:
        with dask_strata.record(tmp_path / "runs", client=client) as run:
            client.submit(abs, -1).result()
            name = run.path.name

            def state() -> dict[str, str]:
                return json.loads(server.get(f"/runs/{name}/state").text)

            first = wait_until(lambda: "1 task" in state()["headline"] and state())
            assert first["state"] == "recording"
            page = f"/runs/{name}"
            wait_until(lambda: 'data-live="yes"' in server.get(page).text, what="the page")
            client.gather(client.map(abs, range(-5, -1)))
            wait_until(lambda: "5 tasks" in state()["headline"], what="more tasks")
            assert state()["mark"] != first["mark"]
        wait_until(lambda: state()["state"] == "complete", what="the end")


def test_simultaneous_queries(server: Server, runs: list[Run]) -> None:
    """Each of many browsers receives the answer to its own query."""
    found: list[int] = []

    def ask(i: int) -> None:
        page = server.ask(runs[0].path.name, f"select {i} + count(*) as n from tasks")
        found.append(int(re.findall(r'<td class="n">(\d+)', page.text)[0]))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [21 + i for i in range(12)]


def test_a_port_that_is_taken(
    server: Server, folder: Path, strata: Callable[..., subprocess.CompletedProcess]
) -> None:
    """The error has advice."""
    port = server.url.rpartition(":")[2]
    done = strata("serve", folder, "--port", port)
    assert done.returncode == 2
    assert "--port 0" in done.stderr


def test_it_ends_on_ctrl_c(folder: Path, serve: Callable[..., Server]) -> None:
    """Quietly, with status 0."""
    server = serve(folder)
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(30) == 0


def test_a_page_that_takes_long_is_announced(
    folder: Path, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that reloads itself is there meanwhile, then that of the run; it is made once."""
    monkeypatch.setattr(run_page, "_PATIENCE_SECONDS", 0)
    made: list[str] = []

    def make(run: Run) -> str:
        made.append(run.path.name)
        return make_page(run)

    monkeypatch.setattr(run_page, "make_page", make)
    name = runs[0].path.name
    listening = bind_sockets(0, "127.0.0.1")
    port = listening[0].getsockname()[1]

    async def answers() -> list[str]:
        with ThreadPoolExecutor(2) as threads:
            context = ServerContext(
                RunCache(folder), frozenset(), None, "c", *[threads] * 3, None, make_templates()
            )
            server = HTTPServer(Application(routes(context)))
            server.add_sockets(listening)
            client, found = AsyncHTTPClient(), []
            while not found or "strata-bar" not in found[-1]:
                answer = await client.fetch(f"http://127.0.0.1:{port}/runs/{quote(name)}")
                found.append(answer.body.decode())
                await asyncio.sleep(0.05)
            server.stop()
            await server.close_all_connections()
            return found

    found = asyncio.run(asyncio.wait_for(answers(), 120))
    assert 'http-equiv="refresh"' in found[0]
    assert "21 tasks" in found[-1]
    assert made == [name]
