"""Real brokers that are absent, stopped, killed and started again while a run is sent."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dask_strata import follow
from dask_strata.brokers.registry import open_source
from dask_strata.store.manifest import Manifest
from dask_strata.stream.sender import send
from tests.brokers.servers import KafkaCluster, RedisServer, stop
from tests.conftest import wait_until
from tests.support.following import Followed
from tests.support.streams import seen_once
from tests.support.synthetic import T0, Process, new_run

RUN = "synth"


class Recording:
    """A run that is recorded, and a thread that sends it."""

    def __init__(self, folder: Path, url: str) -> None:
        new_run(folder)
        Manifest(RUN, "synthetic", time.time_ns(), "0").write(folder)
        self.folder, self.url = folder, url
        self.processes = [Process(folder, "scheduler-1"), Process(folder, "worker-1")]
        self.notes: list[str] = []
        self.results: list[Any] = []
        self._sender = threading.Thread(target=self._send)

    def _send(self) -> None:
        try:
            self.results.append(send(self.folder, self.url, report=self.notes.append))
        except Exception as error:  # noqa: BLE001  shown by the test
            self.results.append(error)

    def start(self) -> None:
        self._sender.start()

    def write(self, n: int) -> None:
        """Write rows of two tables."""
        for i in range(n):
            for process in self.processes:
                process.write("overheads", [{"time": T0 + i, "rows": i}] * 7)
                process.write("job", [{"name": "x", "value": str(i)}] * 2)

    def end(self) -> None:
        for process in reversed(self.processes):
            process.end()
        self._sender.join(90)
        assert [getattr(result, "state", result) for result in self.results] == ["complete"]

    def expected(self) -> dict[str, list[int]]:
        """Return all numbers by process."""
        found = Followed()
        found.add(follow(self.folder, wait=False))
        return {process: list(range(n)) for process, n in found.next.items()}

    def read(self) -> tuple[dict[str, list[int]], list[Any]]:
        """Return the numbers that a reader sees, and all messages."""
        source = open_source(self.url)
        messages = list(source.messages())
        source.close()
        return seen_once(iter(messages), RUN), messages


@pytest.mark.long
def test_redis_is_absent_stopped_killed_and_back(tmp_path: Path) -> None:
    """No gap, and no row twice: not even for a reader who does not look."""
    server = RedisServer(tmp_path / "redis")
    run = Recording(tmp_path / "run", server.url)
    server.kill()
    run.start()
    try:
        run.write(50)
        wait_until(lambda: run.notes)  # absent
        server.start()
        wait_until(lambda: len(run.notes) == 2)
        server.stop()
        began = time.monotonic()
        run.write(50)
        assert time.monotonic() - began < 5  # the recording does not notice
        time.sleep(2)
        server.signal(signal.SIGCONT)
        run.write(50)
        server.kill()
        run.write(50)
        time.sleep(1)
        server.start()
        run.end()
        seen, messages = run.read()
    finally:
        server.signal(signal.SIGCONT)
        server.close()
    assert seen == run.expected()
    places = [(m.process, m.first) for m in messages if m.kind == "row"]
    assert len(places) == len(set(places))
    assert (messages[0].kind, messages[-1].kind) == ("run", "end")


@pytest.mark.long
def test_kafka_is_stopped_and_goes_on(tmp_path: Path) -> None:
    """No gap, and no row twice for a reader who drops numbers that it had."""
    cluster = KafkaCluster()
    run = Recording(tmp_path / "run", f"{cluster.url}/runs")
    run.start()
    try:
        run.write(50)
        time.sleep(1)
        stop(cluster.process)
        run.write(50)
        time.sleep(3)
        cluster.process.send_signal(signal.SIGCONT)
        run.write(50)
        run.end()
        seen, messages = run.read()
    finally:
        cluster.close()
    assert seen == run.expected()
    assert any(m.kind == "end" for m in messages)
