"""Fixtures of the tests of `dask-strata record`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.recorded import (
    DASK,
)
from tests.conftest import wait_until
from tests.support.processes import terminate


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a process in the test's folder; it is ended, by its pid, when the test is over."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*command: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        log = (tmp_path / f"process-{len(started)}.log").open("wb")
        with log:
            for stream in ("stdout", "stderr"):
                kwargs.setdefault(stream, log)
            kwargs.setdefault("stdin", subprocess.DEVNULL)
            process = subprocess.Popen([*map(str, command)], cwd=tmp_path, **kwargs)
        started.append(process)
        return process

    yield begin
    for process in reversed(started):
        terminate(process)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def elsewhere(start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path) -> Callable[..., Path]:
    """Start a scheduler and a worker as a user would; return the scheduler's file."""

    def begin(*arguments: str, **environment: str) -> Path:
        file = tmp_path / "scheduler.json"
        env = {**os.environ, **environment}
        at = ("--scheduler-file", file, "--dashboard-address", ":0")
        start(DASK, "scheduler", "--port", 0, *at, *arguments, env=env)
        wait_until(lambda: file.exists() and file.read_text(), what="the scheduler")
        start(DASK, "worker", "--nthreads", 1, *at, env=env)
        return file

    return begin
