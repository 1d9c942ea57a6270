"""Hostile addresses, requested from a real server."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.synthetic import small_run

SECRET = b"outside of the folder of runs"
TOKEN = "sesame"
Request = Callable[[bytes], tuple[int, bytes]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two runs, one of them with links and a pipe, and secrets next to it."""
    home = tmp_path_factory.mktemp("serve")
    small_run(home / "runs" / "r")
    odd = small_run(home / "runs" / "odd")
    small_run(home / "secret")
    (home / "secret.txt").write_bytes(SECRET)
    (odd / "link.txt").symlink_to(home / "secret.txt")
    (odd / "folder").symlink_to(home)
    os.mkfifo(odd / "pipe")
    return home


@pytest.fixture(scope="module")
def request_path(folder: Path) -> Iterator[Request]:
    """A function that requests a path from a server and returns status and response."""
    command = [sys.executable, "-m", "dask_strata", "serve", str(folder / "runs"), "--port", "0"]
    process = subprocess.Popen([*command, "--token", TOKEN], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r"http://127.0.0.1:(\d+)", process.stdout.readline())
    assert found

    def get(path: bytes) -> tuple[int, bytes]:
        with socket.create_connection(("127.0.0.1", int(found[1])), timeout=120) as connection:
            access = f"Authorization: token {TOKEN}".encode()
            head = b"\r\nHost: 127.0.0.1\r\nConnection: close\r\n" + access + b"\r\n\r\n"
            connection.sendall(b"GET " + path + b" HTTP/1.1" + head)
            response = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        status = re.match(rb"HTTP/1\.1 (\d{3})", response)
        return int(status[1]) if status else 0, response

    yield get
    process.send_signal(signal.SIGINT)
    process.wait(60)


PIECES = st.sampled_from(
    [
        *("..", "%2e%2e", "/", "%2f", "\\", "%5c", "%00", "%ff", "%", "?", "#", ";", "//"),
        *("runs", "r", "secret", "secret.txt", "run.tar", "tables", "tasks.csv", "x" * 5000),
        *("assets", "serve.css"),
    ]
)
PATHS = st.lists(PIECES, max_size=8).map(lambda p: ("/" + "/".join(p)).encode())


def assert_harmless(request_path: Request, path: bytes) -> None:
    """Assert that the server responds with a page of its own, or with an error of the client."""
    status, response = request_path(path)
    assert status == 0 or 200 <= status < 500, (path, response[:300])
    assert SECRET not in response
    if status == 200:
        assert re.match(rb"/(\?|#|$)|/(runs/(r|odd)|assets|compare)", path), path


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "path",
    [
        b"/runs/../secret", b"/runs/..%2fsecret", b"/runs/%2e%2e%2fsecret/run.tar", b"/runs/%00",
        b"/runs/..", b"/runs/.", b"/assets/../app.py", b"/assets/..%2f..%2fapp.py", b"/%ff%fe",
        b"/runs/r/tables/../../../secret.txt", b"/runs/r/tables/job.pickle", b"/runs/\xff\xfe",
        b"//etc/passwd", b"/runs/" + b"%2e" * 20_000, b"/" * 60_000, b"http://127.0.0.1/../secret",
        b"*", b"", b"/runs/r/story?key=%ff%00", b"/compare?run=r&run=../secret",
    ],
)  # fmt: skip
def test_no_address_leads_out(request_path: Request, path: bytes) -> None:
    """Nothing outside of the folder of runs is served, and no address makes the server fail."""
    assert_harmless(request_path, path)
    assert request_path(b"/")[0] == 200


@pytest.mark.timeout(240)
@given(
    st.lists(PIECES, max_size=8).map(lambda p: ("/" + "/".join(p)).encode())
    | st.binary(max_size=60)
)
@settings(deadline=None, max_examples=60, derandomize=True, database=None)
def test_any_address_has_a_response(request_path: Request, path: bytes) -> None:
    """Each address has a response, and none contains anything outside of the runs."""
    if not {b"\r", b"\n", b" "} & {path[i : i + 1] for i in range(len(path))}:
        assert_harmless(request_path, path)
    assert request_path(b"/assets/serve.css")[0] == 200


@pytest.mark.parametrize("path", [b"//elsewhere.example/x", b"/\\elsewhere.example/x", b"/x"])
def test_a_token_leads_to_no_other_server(request_path: Request, path: bytes) -> None:
    """With a valid token, the redirect leads to this server, whatever the address is."""
    status, response = request_path(path + b"?token=" + TOKEN.encode())
    assert status == 302
    assert re.search(rb"\r\nLocation: /[^/\\]", response)


def test_an_archive_has_files_of_the_run_only(request_path: Request) -> None:
    """The archive of a run contains no links and no pipes, and creating it does not block."""
    status, response = request_path(b"/runs/odd/run.tar")
    assert status == 200
    assert b"odd/run.json" in response
    assert b"odd/pipe" not in response
    assert b"link.txt" not in response
    assert SECRET not in response
