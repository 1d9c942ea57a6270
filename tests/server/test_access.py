"""Who may read runs from the history server: over real sockets, as this and as another user."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from dask_strata.server.handlers import routes
from tests.conftest import wait_until
from tests.server.test_serve import Server, serve
from tests.support.synthetic import small_run

__all__ = ["serve"]

NAME = "2026-01-01-private"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder with one run, which another user can reach."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        (Path(made) / "runs").mkdir()
        small_run(Path(made) / "runs" / NAME)
        yield Path(made) / "runs"


@pytest.fixture(scope="module")
def server(folder: Path, serve: Callable[..., Server]) -> Server:
    """Return a server with a random token."""
    return serve(folder)


def addresses() -> list[str]:
    """Return an address for each route."""
    made = []
    for pattern, *_ in routes(cast("Any", None)):
        address = pattern.replace("/runs/([^/]+)", f"/runs/{NAME}")
        address = address.replace("/tables/([a-z_]+)", "/tables/tasks")
        address = re.sub(r"\(([^|)]*)[^)]*\)", r"\1", address).replace("\\", "")
        assert re.fullmatch(pattern, address), pattern
        made.append(address)
    return made


def test_every_address_needs_the_token(server: Server) -> None:
    """Each route, with each method, and each unknown address: without the token all are alike."""
    assert len(addresses()) >= 10
    for address in addresses():
        assert server.get(address).status in (200, 400), address
    for address in [*addresses(), "/no/such/page"]:
        for method in ("GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"):
            connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
            connection.request(method, address)
            answer = connection.getresponse()
            assert answer.status == 401, (method, address)
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert NAME.encode() not in answer.read()
            connection.close()


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {"Authorization": ""}),
        ("/", {"Authorization": "token"}),
        ("/", {"Authorization": "token wrong"}),
        ("/", {"Authorization": "Basic {token}"}),
        ("/?token=wrong", {"Authorization": ""}),
        ("/?token=", {"Authorization": ""}),
        ("/?token=%ff", {"Authorization": ""}),
        ("/", {"Authorization": "", "Cookie": "dask_strata_{port}={token}"}),
        ("/", {"Authorization": "", "Cookie": "dask_strata_{port}="}),
    ],
)
def test_a_wrong_token_reads_nothing(server: Server, path: str, headers: dict[str, str]) -> None:
    """A wrong token, an empty one, and the right one in a wrong place are refused."""
    port = server.url.rpartition(":")[2]
    filled = {n: v.format(token=server.token, port=port) for n, v in headers.items()}
    answer = server.get(path, **filled)
    assert answer.status in (400, 401)
    assert NAME not in answer.text


def test_the_printed_address_sets_a_cookie(server: Server) -> None:
    """The browser gets a cookie that scripts and other sites cannot use, and a clean address."""
    assert len(server.token) >= 32
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    connection.request("GET", f"/?token={server.token}&part=rows")
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Location"]) == (302, "/?part=rows")
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert server.token not in str(answer.headers)
    page = server.get("/", Authorization="", Cookie=cookie.partition(";")[0])
    assert page.status == 200
    assert NAME in page.text


def test_scripts_send_the_token_in_a_header(server: Server) -> None:
    """`Authorization: token …` and `Authorization: Bearer …` are accepted."""
    for scheme in ("token", "Token", "Bearer", "bearer"):
        assert server.get("/", Authorization=f"{scheme} {server.token}").status == 200


def test_no_page_and_no_output_has_the_token(folder: Path, tmp_path: Path) -> None:
    """Only the printed line has the token: no page, no header, not standard error."""
    with (tmp_path / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "dask_strata", "serve", str(folder), "--port", "0"],
            stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            found = re.search(r"(http\S+)/\?token=(\S+)", process.stdout.readline())
            assert found
            server = Server(found[1], process, found[2])
            for path in [*addresses(), "/no/such/page"]:
                answer = server.get(path)
                assert server.token.encode() not in answer.body
                assert server.token not in str(answer.headers)
                assert "same-origin" in answer.headers["Referrer-Policy"]
            # A request that is malformed, or that fails, is logged without its address.
            host, port = server.url.removeprefix("http://").split(":")
            for request in (
                f"GET /?token={server.token} HTTP/1.1\r\nbad header\r\n\r\n",
                f"GET /?token={server.token}&%ff HTTP/1.1\r\nContent-Length: x\r\n\r\n",
                f"NONSENSE /?token={server.token} HTTP/1.1\r\nHost: localhost\r\n\r\n",
            ):
                with socket.create_connection((host, int(port)), timeout=60) as connection:
                    connection.sendall(request.encode())
                    connection.recv(4096)
        finally:
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=60)
    assert server.token not in rest
    assert server.token not in (tmp_path / "errors").read_text()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example"])
def test_foreign_names_are_refused(server: Server, host: str) -> None:
    """Another site whose name resolves to this machine reads nothing."""
    page = server.get("/", Host=host)
    assert page.status == 403
    assert NAME not in page.text
    assert server.get("/", Host="localhost:1").status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://localhost.evil.example"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
    ],
)
def test_requests_of_other_sites_are_refused(server: Server, headers: dict[str, str]) -> None:
    """A script of another origin reads nothing, even if the browser sent the token with it."""
    for path, data in (("/", None), (f"/runs/{NAME}/sql", b"query=select+1")):
        page = server.get(path, data, **headers)
        assert page.status == 403, path
        assert NAME not in page.text
    assert server.get("/", Origin=server.url).status == 200


@pytest.mark.long
def test_options_for_the_token(
    folder: Path,
    serve: Callable[..., Server],
    strata: Callable[..., subprocess.CompletedProcess[str]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """One's own token, from the environment or an option; or none, with a warning, on loopback."""
    refused = strata("serve", folder, "--host", "0.0.0.0", "--no-token")
    assert refused.returncode == 2
    assert "token" in refused.stderr
    for wrong in (("--token", "t\udcff"), ("--host", "h\udcff")):
        refused = strata("serve", folder, "--port", "0", *wrong)
        assert refused.returncode == 2
        assert "This is a bug" not in refused.stderr
    everywhere = serve(folder, "--host", "0.0.0.0")
    assert everywhere.get("/").status == 200
    assert everywhere.get("/", Authorization="").status == 401
    assert "list of processes" not in capfd.readouterr().err
    own = serve(folder, "--token", "open sesame;ü")
    assert "list of processes" in capfd.readouterr().err
    connection = http.client.HTTPConnection(own.url.removeprefix("http://"), timeout=60)
    connection.request("GET", f"/?token={own.token}")
    answer = connection.getresponse()
    assert answer.status == 302
    cookie = answer.headers["Set-Cookie"].partition(";")[0]
    assert own.get("/", Authorization="", Cookie=cookie).status == 200
    unprotected = serve(folder, "--no-token")
    assert "Every user of this machine" in capfd.readouterr().err
    assert unprotected.token == ""
    assert unprotected.get("/", Authorization="").status == 200
    monkeypatch.setenv("DASK_STRATA_TOKEN", "from-the-environment")
    assert serve(folder).token == "from-the-environment"
    monkeypatch.setenv("DASK_STRATA_TOKEN", "t\udcff")
    refused = strata("serve", folder, "--port", "0")
    assert (refused.returncode, "not UTF-8" in refused.stderr) == (2, True)
    monkeypatch.setenv("DASK_STRATA_TOKEN", "")
    assert len(serve(folder).token) >= 32


class UnixConnection(http.client.HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self) -> None:
        """Connect to the path."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


def get(path: Path, address: str = "/", **headers: str) -> tuple[int, bytes]:
    """Return status and body of a response over a Unix socket."""
    connection = UnixConnection(path)
    connection.request("GET", address, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.fixture
def start() -> Iterator[Callable[[Path, Path], subprocess.Popen[str]]]:
    """Start servers that listen on a Unix socket."""
    started: list[subprocess.Popen[str]] = []

    def run(runs: Path, path: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "dask_strata", "serve", str(runs), "--socket", str(path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert str(path) in process.stdout.readline()
        return process

    yield run
    for process in started:
        process.kill()
        process.wait(30)


AS_NOBODY = """
import encodings.idna, os, socket, sys, urllib.request, urllib.error
os.setgroups([]), os.setgid(65534), os.setuid(65534)
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
except OSError as error:
    print(type(error).__name__)
try:
    urllib.request.urlopen(sys.argv[2], timeout=60)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="NOT TRIED: only root can become another user")
def test_another_user_of_this_machine_reads_nothing(
    folder: Path, server: Server, start: Callable[[Path, Path], Any]
) -> None:
    """Neither over loopback nor over the socket, even in a folder that all can reach."""
    path = folder.parent / "serve.sock"
    start(folder, path)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(path), server.url],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.split() == ["PermissionError", "401"], done.stderr


def test_a_unix_socket(
    folder: Path,
    start: Callable[[Path, Path], subprocess.Popen[str]],
    strata: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    """Only its owner can connect; it needs no token, and is removed at the end."""
    path = tmp_path / "made" / "serve.sock"
    before = os.umask(0)
    try:
        first = start(folder, path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    status, page = get(path)
    assert (status, NAME.encode() in page) == (200, True)
    assert get(path, Host="evil.example")[0] == 403
    assert get(path, Origin="http://evil.example")[0] == 403
    taken = strata("serve", folder, "--socket", path)
    assert (taken.returncode, "Another server" in taken.stderr) == (2, True)
    assert get(path)[0] == 200
    first.send_signal(signal.SIGINT)
    assert first.wait(30) == 0
    assert not path.exists()
    second = start(folder, path)
    second.kill()
    second.wait(30)
    assert path.exists()
    start(folder, path)  # replaces what a killed server left
    wait_until(lambda: get(path)[0] == 200)


@pytest.mark.release
@pytest.mark.long
def test_wrong_paths_of_sockets(
    folder: Path, strata: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """Each error is a sentence, and no file is replaced."""
    file = tmp_path / "file"
    file.write_text("mine")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    for path, message in (
        (file, "not a socket"),
        (shared / "s", "Other users could replace"),
        (tmp_path / ("x" * 120), "Cannot listen"),
        (file / "s", "Cannot listen"),
    ):
        done = strata("serve", folder, "--socket", path)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert file.read_text() == "mine"
    done = strata("serve", folder, "--socket", tmp_path / "s", "--port", "1")
    assert (done.returncode, "excludes" in done.stderr) == (2, True)


@pytest.mark.long
def test_half_sent_requests_end(server: Server) -> None:
    """The server closes connections on which headers or a body do not arrive; others go on."""
    host, port = server.url.removeprefix("http://").split(":")
    begun = (
        b"",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nha",
    )
    connections = [socket.create_connection((host, int(port)), timeout=120) for _ in begun]
    for connection, part in zip(connections, begun, strict=True):
        connection.sendall(part)
    assert server.get("/").status == 200
    for connection in connections:
        assert connection.recv(1 << 16) in (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n")
        connection.close()
