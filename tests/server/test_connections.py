"""Connections of clients that open many, do not read, or close them during a response."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path

import psutil
import pytest

from dask_strata.server.connections import CONNECTIONS
from tests.conftest import wait_until
from tests.server.test_serve import Server, serve
from tests.support.synthetic import small_run

__all__ = ["serve"]

NAME = "2026-01-01-large"

#: Bytes of the archive of the run: much more than the kernel's buffers hold.
ARCHIVE_BYTES = 64 << 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run, which contains a large file."""
    runs = tmp_path_factory.mktemp("connections") / "runs"
    runs.mkdir()
    run = small_run(runs / NAME)
    (run / "large").write_bytes(bytes(ARCHIVE_BYTES))
    return runs


@pytest.fixture(scope="module")
def server(folder: Path, serve: Callable[..., Server]) -> Server:
    """Return a server of the folder."""
    return serve(folder)


@pytest.fixture
def connect(server: Server) -> Iterator[Callable[[], socket.socket]]:
    """Connect to the server; the connections are closed after the test."""
    host, port = server.url.removeprefix("http://").split(":")
    made: list[socket.socket] = []

    def connect_once() -> socket.socket:
        made.append(socket.create_connection((host, int(port)), timeout=120))
        return made[-1]

    yield connect_once
    for each in made:
        each.close()
    wait_until(lambda: n_connections(server) == 0, what="the end of the connections")


def n_connections(server: Server) -> int:
    """Return the number of connections that the server has open."""
    found = psutil.Process(server.process.pid).net_connections("tcp")
    return sum(each.status not in (psutil.CONN_LISTEN, psutil.CONN_NONE) for each in found)


def test_connections_beyond_the_limit_are_refused(
    server: Server, connect: Callable[[], socket.socket]
) -> None:
    """A further connection receives a reason; when others have ended, requests are answered."""
    made = [connect() for _ in range(CONNECTIONS)]
    wait_until(lambda: n_connections(server) >= CONNECTIONS, what="the connections")
    refused = server.get("/")
    assert (refused.status, refused.headers["Retry-After"]) == (503, "10")
    assert "as many connections" in refused.text
    silent = connect()  # which sends no request: it ends, too
    assert b"503 Service Unavailable" in silent.recv(1 << 16)
    for each in made:
        each.close()
    wait_until(lambda: server.get("/").status == 200, what="an answer")
    assert server.get("/").status == 200


def test_many_more_connections_leave_the_server_able_to_answer(
    server: Server, connect: Callable[[], socket.socket]
) -> None:
    """However many connections a client opens, the server keeps a limited number of them."""
    made = [connect() for _ in range(3 * CONNECTIONS)]
    wait_until(lambda: n_connections(server) <= CONNECTIONS, what="refused connections to end")
    for each in made:
        each.close()
    wait_until(lambda: answers(server), what="an answer")


def answers(server: Server) -> bool:
    """Return whether the server accepts a connection and answers."""
    try:
        return server.get("/").status == HTTPStatus.OK
    except ConnectionError:  # it refuses connections until it has noticed that the others ended
        return False


def download(server: Server, connection: socket.socket) -> None:
    """Request the archive of the run, and receive its first bytes."""
    head = f"GET /runs/{NAME}/run.tar HTTP/1.1\r\nHost: localhost\r\nAuthorization: token "
    connection.sendall(f"{head}{server.token}\r\n\r\n".encode())
    assert connection.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.release
@pytest.mark.long
def test_a_client_that_does_not_read_is_disconnected(
    server: Server, connect: Callable[[], socket.socket]
) -> None:
    """A response that nobody receives ends; a slow client that reads receives all of its own."""
    silent, slow = connect(), connect()
    download(server, silent)
    download(server, slow)
    received, end = 0, time.monotonic() + 40  # longer than the limit of one part
    slow.settimeout(60)
    while received < ARCHIVE_BYTES:
        received += len(slow.recv(1 << 18))
        if time.monotonic() < end:
            time.sleep(0.2)  # a slow reader is what is tested
    slow.close()
    wait_until(lambda: n_connections(server) == 0, 100, what="the end of the download")
    assert server.get("/").status == 200


def test_a_client_that_leaves_causes_no_error(folder: Path, tmp_path: Path) -> None:
    """A download that the client cancels is nothing that the server reports."""
    errors = tmp_path / "errors"
    command = [sys.executable, "-m", "dask_strata", "serve", str(folder), "--port", "0"]
    with errors.open("wb") as file:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True)
    assert process.stdout is not None
    address, _, token = process.stdout.readline().split()[-1].partition("/?token=")
    server = Server(address, process, token)
    try:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=120) as connection:
            download(server, connection)
        wait_until(lambda: n_connections(server) == 0, what="the end of the download")
        assert server.get("/", Origin="http://[").status == 403
        assert server.get("/").status == 200
    finally:
        process.terminate()
        process.wait(60)
    assert errors.read_text().splitlines() == ["Ctrl-C stops the server."]
