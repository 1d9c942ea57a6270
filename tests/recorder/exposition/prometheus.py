"""Debian's Prometheus as a process of its own, which scrapes pages on loopback."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until
from tests.support.processes import terminate

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs Debian's prometheus"
)


def page(address: str) -> str:
    """Return the page `/metrics` of a server, given as host and port."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        return answer.read().decode()


class Prometheus:
    """A running Prometheus."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, query: str, at: float | None = None) -> list[dict[str, Any]]:
        """Return the series that answer a query at a time."""
        arguments = {"query": query} if at is None else {"query": query, "time": str(at)}
        url = f"{self.url}/api/v1/query?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]["result"]

    def values(self, query: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Return the values of a query by their labels."""
        found = self.ask(query)
        return {
            tuple(s["metric"].get(name, "") for name in labels): float(s["value"][1]) for s in found
        }

    def scrape(self, targets: int) -> None:
        """Wait until each target has been scraped once more."""
        now = time.time()

        def scraped() -> bool:
            times = self.values("timestamp(up == 1)", "instance")
            return len(times) == targets and min(times.values()) > now

        wait_until(scraped, what="a scrape of all targets")


@contextmanager
def prometheus(folder: Path, targets: Sequence[str]) -> Iterator[Prometheus]:
    """Run Prometheus on some targets, each given as host and port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = {
        "global": {"scrape_interval": "300ms", "scrape_timeout": "300ms"},
        "scrape_configs": [{"job_name": "dask", "static_configs": [{"targets": list(targets)}]}],
    }
    path = folder / "prometheus.yml"
    path.write_text(json.dumps(config))  # JSON is YAML, too
    arguments = {
        "config.file": path,
        "storage.tsdb.path": folder / "tsdb",
        "web.listen-address": f"127.0.0.1:{port}",
        "log.level": "error",
    }
    process = subprocess.Popen(["prometheus", *(f"--{k}={v}" for k, v in arguments.items())])
    try:
        made = Prometheus(port)
        wait_until(lambda: _ready(made), what="Prometheus")
        yield made
    finally:
        terminate(process)


def _ready(server: Prometheus) -> bool:
    try:
        with urllib.request.urlopen(f"{server.url}/-/ready", timeout=5):
            return True
    except OSError:
        return False
