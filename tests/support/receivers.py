"""Servers on loopback that exports are sent to, or read by."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

if TYPE_CHECKING:
    from typing_extensions import Self

from tests.conftest import wait_until
from tests.support.own_venv import own_environment, own_venv
from tests.support.processes import ends


def free_port() -> int:
    """Return a port of loopback that no process listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@contextmanager
def _serving(
    command: list[Any], health: str, log: Path, seconds: float, **how: Any
) -> Iterator[None]:
    """Run a server and its children until the end of the block."""
    with log.open("wb") as file:
        server = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, **how
        )
    try:
        wait_until(
            lambda: _answers(health) or server.poll() is not None, seconds, f"{command[0]} to start"
        )
        assert server.poll() is None, log.read_text()[-3000:]
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(server.pid, number)
            except ProcessLookupError:
                break
            ends(server, 5)


def mlflow_python() -> Path:
    """Return the Python that has MLflow."""
    return own_venv("mlflow", ["mlflow>=3.1"])


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """Run MLflow's server; yield its URL."""
    python, url = mlflow_python(), f"http://127.0.0.1:{free_port()}"
    environment = own_environment() | {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    command = [python, "-I", "-m", "mlflow", "server", "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.sqlite'}"]
    command += ["--default-artifact-root", folder / "artifacts", "--host", "127.0.0.1"]
    command += ["--port", url.rpartition(":")[2]]
    log = folder / "mlflow.log"
    with _serving(command, f"{url}/health", log, 150, env=environment, cwd=folder):
        yield url


@contextmanager
def prometheus_server(blocks: Path) -> Iterator[str]:
    """Run Prometheus over blocks that promtool made; yield its URL."""
    url = f"http://127.0.0.1:{free_port()}"
    config = blocks.with_name("prometheus.yml")
    config.write_text("scrape_configs: []\n")
    command = [
        shutil.which("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={blocks}",
        f"--web.listen-address={url.partition('//')[2]}", "--storage.tsdb.retention.time=100y",
    ]  # fmt: skip
    with _serving(command, f"{url}/-/ready", blocks.with_name("prometheus.log"), 60):
        yield url


def promql(url: str, query: str, time: float) -> dict[tuple[str, ...], float]:
    """Return the answer of Prometheus at a time: values by the values of labels."""
    parameters = urlencode({"query": query, "time": f"{time:.3f}"})
    with urllib.request.urlopen(f"{url}/api/v1/query?{parameters}", timeout=30) as answer:
        found = json.load(answer)
    assert found["status"] == "success", found
    return {
        tuple(each["metric"][name] for name in sorted(each["metric"]) if name != "__name__"):
        float(each["value"][1])
        for each in found["data"]["result"]
    }  # fmt: skip


class Collector(ThreadingHTTPServer):
    """A receiver of requests that answers as a test wishes, and then with success.

    Attributes
    ----------
    requests : list
        Path, headers and body of each request.
    answers : list
        Statuses, bodies and headers of the next answers.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[tuple[int, bytes, dict[str, str]]] = []
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """The URL without a path."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Keep a request and answer it."""
        server = self.server
        assert isinstance(server, Collector)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.requests.append((self.path, dict(self.headers), body))
        default = (200, b"{}", {})
        status, text, headers = server.answers.pop(0) if server.answers else default
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Print nothing."""
