"""Limits of users' queries hold: time, memory, bytes and number, measured in /proc."""

from __future__ import annotations

import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlencode

import psutil
import pytest

from tests.conftest import wait_until
from tests.server.test_serve import Server, serve
from tests.support.synthetic import small_run

pytestmark = pytest.mark.long

__all__ = ["serve"]

NAME = "run"
MIB = 1 << 20

#: Takes minutes, in little memory.
SLOW = "select sum(a.range * b.range) from range(10000000) a, range(10000000) b, range(9) c"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run."""
    runs = tmp_path_factory.mktemp("sql") / "runs"
    runs.mkdir()
    small_run(runs / NAME)
    return runs


def children(server: Server) -> list[psutil.Process]:
    """Return the running processes that the server started."""
    found = psutil.Process(server.process.pid).children(recursive=True)
    return [process for process in found if process.status() != psutil.STATUS_ZOMBIE]


def largest_bytes(pid: int) -> int:
    """Return the most memory that a process has had, by the kernel's count."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10  # type: ignore[index]


@contextmanager
def watch_memory(server: Server) -> Iterator[dict[int, int]]:
    """Yield the most memory that each process of the server has had, by its id."""
    found: dict[int, int] = {}
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.01):
            with suppress(psutil.Error):
                for pid in (server.process.pid, *(child.pid for child in children(server))):
                    with suppress(OSError, TypeError):  # it ends at this moment
                        found[pid] = max(found.get(pid, 0), largest_bytes(pid))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


@pytest.fixture(scope="module")
def server(folder: Path, serve: Callable[..., Server]) -> Server:
    """Return a server with the default limits."""
    return serve(folder)


def test_memory_and_bytes(server: Server) -> None:
    """Hungry queries have an error, large answers end at 4 MiB, and the server stays small."""
    assert server.ask(NAME, "select count(*) from tasks").status == 200
    (first,) = children(server)
    before = largest_bytes(first.pid)
    hungry = (
        "select repeat('x', 2000000000)",
        "select repeat('x', 300000000)",
        "select repeat('x', 1000000) from range(1000)",
        "select list(a.range) from range(30000000) a",
        "select sum(length(s)) from (select string_agg(repeat('x', 1000000)) s from range(3000))",
    )
    with watch_memory(server) as memory:
        for query in hungry:
            page = server.ask(NAME, query)
            assert (page.status, "SQL: " in page.text) == (400, True), query
        page = server.ask(NAME, "select repeat('é', 10000) as text from range(100000)")
    assert page.status == 200
    assert "rows, 4 MiB" in page.text
    assert 0 < page.text.count("<tr>") < 1000
    assert len(page.body) < 8 * MIB
    page = server.ask(NAME, "select repeat('x', 5000000)")
    assert (page.status, "larger than 4 MiB" in page.text) == (400, True)
    most = memory.pop(server.process.pid)
    assert most < 400 * MIB, most
    assert max(memory.values()) < before + 1024 * MIB, (before, memory)
    assert server.ask(NAME, "select count(*) from tasks").status == 200


@pytest.mark.release
def test_slow_queries_do_not_delay_pages(folder: Path, serve: Callable[..., Server]) -> None:
    """While queries run and wait, pages are answered, too many have an answer, and all end."""
    server = serve(folder, "--sql-seconds", "20")
    assert server.ask(NAME, "select count(*) from tasks").status == 200
    answers: list[tuple[int, str]] = []

    def ask(_: int) -> None:
        page = server.ask(NAME, SLOW)
        answers.append((page.status, page.text))

    with ThreadPoolExecutor(24) as threads:
        asked = [threads.submit(ask, i) for i in range(24)]
        wait_until(lambda: len(children(server)) == 2, what="both processes")
        busy = wait_until(lambda: [*answers], what="the answer to a query too many")
        assert {status for status, _ in busy} == {503}
        assert "busy with other queries" in busy[0][1]
        for path in ("/", f"/runs/{NAME}", f"/runs/{NAME}/tables/tasks.csv", "/assets/serve.js"):
            assert server.get(path).status == 200
        assert not all(future.done() for future in asked), "pages were answered in between"
        assert {status for status, _ in answers} == {503}, "no query had ended yet"
    assert {status for status, _ in answers} == {400, 503}
    late = [text for status, text in answers if status == 400]
    assert all("took more than 20 s" in text for text in late)
    wait_until(
        lambda: all(child.cpu_percent(0.5) < 50 for child in children(server)),
        what="the end of all queries",
    )
    page = server.ask(NAME, "select 6 * 7 as n")
    assert '<td class="n">42</td>' in page.text


def test_a_query_ends_with_its_connection(folder: Path, serve: Callable[..., Server]) -> None:
    """A browser that goes away leaves no query behind."""
    server = serve(folder, "--sql-seconds", "3600")
    host, port = server.url.removeprefix("http://").split(":")
    body = urlencode({"query": SLOW})
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(
            f"POST /runs/{NAME}/sql HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: token {server.token}\r\n"
            "Content-Type: application/x-www-form-urlencoded\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        (child,) = wait_until(lambda: children(server), what="the process of the query")
        used = sum(child.cpu_times()[:2])
        wait_until(lambda: sum(child.cpu_times()[:2]) > used + 5, what="work on the query")
    wait_until(lambda: not children(server), what="its end")


def test_opening_a_run_has_a_limit_of_its_own(folder: Path, serve: Callable[..., Server]) -> None:
    """A run that opens slower than a query may take can be queried; opening is limited, too."""
    server = serve(folder, "--sql-seconds", "0.1")
    page = server.ask(NAME, "select 6 * 7 as n")  # it names no table, so all are opened
    assert '<td class="n">42</td>' in page.text, page.text
    page = server.ask(NAME, SLOW)
    assert (page.status, "the query took more than 0.1 s" in page.text) == (400, True)
    server = serve(folder, "--open-seconds", "0.01")
    page = server.ask(NAME, "select 6 * 7 as n")
    assert (page.status, "opening the run took more than 0.01 s" in page.text) == (400, True)


@pytest.mark.release
def test_temporary_files_are_removed(
    folder: Path, serve: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes leave no temporary files, however they or the server end."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    server = serve(folder)
    for end in ("query", "server", "killed server"):
        assert server.ask(NAME, "select 1").status == 200
        assert [*tmp_path.rglob("dask-strata-*")], "the process has a folder"
        if end == "query":
            (child,) = children(server)
            child.kill()
            child.wait(30)
        elif end == "server":
            server.process.send_signal(signal.SIGINT)
            server.process.wait(30)
            server = serve(folder)
        else:
            server.process.kill()
            server.process.wait(30)
        wait_until(lambda: not [*tmp_path.iterdir()], what=f"no files after the end of: {end}")


def test_no_process_outlives_the_server(folder: Path, serve: Callable[..., Server]) -> None:
    """Processes of queries end with the server, also if it is killed."""
    server = serve(folder)
    assert server.ask(NAME, "select 1").status == 200
    (child,) = children(server)
    server.process.kill()
    server.process.wait(30)
    wait_until(lambda: not child.is_running(), what="its end")


@pytest.mark.parametrize(
    "query",
    [
        "select date '9999-12-31' + interval 5000000 days",
        "select 'a' as x, 'b' as x, null, 1e400, 'nan'::double, 'inf'::double",
        "select " + "[" * 200 + "1" + "]" * 200,
        "select {'a': [1, {'b': map([1], ['<b>'])}]}, 170141183460469231731687303715884105727",
        "select '\\x00\\xff'::blob, interval 1 month, uuid(), time '10:00'",
        "from tasks limit 0",
    ],
)
def test_odd_answers(server: Server, query: str) -> None:
    """Values of any type have an answer or an error in one sentence, and no traceback."""
    page = server.ask(NAME, query)
    assert page.status in (200, 400)
    assert page.status == 200 or 'role="alert">SQL: ' in page.text
    assert "<b>" not in page.text
