"""Read counters of Darshan's logs in a child process.

A damaged log can make PyDarshan crash, hang or use all memory, and its output cannot be trusted.
`counters_child` is the program of the child process; only that process imports PyDarshan.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from dask_strata.importers.darshan import counters_child

#: Time limits of the child: to start, and for each log, plus a second for each 1 MiB of the log.
_BEGIN_SECONDS = 60.0
_LOG_SECONDS = 60.0
_BYTES_A_SECOND = 1 << 20

#: Each thread of its numerical library reserves address space, which is limited in the child.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

#: Largest answer about one log; a child that announces more is treated as broken.
_MAX_ANSWER_BYTES = 1 << 30
_MAX_LINE_BYTES = 1 << 16


@dataclass(frozen=True)
class Wanted:
    """A log whose counters are to be read.

    Attributes
    ----------
    path : Path
        The log.
    modules : tuple of str
        Its modules to read.
    """

    path: Path
    modules: tuple[str, ...]


class _DeadChildError(Exception):
    """The child ended, hangs, or sends an invalid answer; the text is the reason."""


def available() -> bool:
    """Return whether PyDarshan is installed."""
    return find_spec("darshan") is not None


def read_counters(
    wanted: Sequence[Wanted], log_seconds: float = _LOG_SECONDS
) -> Iterator[pa.Table | str]:
    """Yield the counters of each log, in order.

    A child reads all logs one after the other. If it dies of a log, another child continues with
    the next log.

    Parameters
    ----------
    wanted : sequence of Wanted
        The logs.
    log_seconds : float, optional
        Time limit for a log, plus a second for each 1 MiB of it.

    Yields
    ------
    pyarrow.Table or str
        The counters (see `counters_child.SCHEMA`), or the reason why they cannot be read.
    """
    done = 0
    while done < len(wanted):
        with tempfile.TemporaryDirectory(prefix="dask-strata-") as folder:
            child = _Child(wanted[done:], Path(folder))
            try:
                while done < len(wanted):
                    answer = child.answer(_seconds(wanted[done], log_seconds))
                    done += 1
                    yield answer
            except _DeadChildError as error:
                done += 1
                yield str(error)
            finally:
                child.end()


def _seconds(wanted: Wanted, log_seconds: float) -> float:
    return log_seconds + wanted.path.stat().st_size / _BYTES_A_SECOND


class _Child:
    def __init__(self, wanted: Sequence[Wanted], folder: Path) -> None:
        self._errors = (folder / "errors").open("w+b")
        # In an empty folder: modules in the current folder could shadow Python's.
        self._process = subprocess.Popen(  # noqa: S603  this Python, and a module of dask-strata
            [sys.executable, "-m", counters_child.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=folder,
            env=os.environ | _ONE_THREAD,
            start_new_session=True,
        )
        self._buffer = b""
        self._first = True
        request = [{"path": str(w.path.absolute()), "modules": w.modules} for w in wanted]
        assert self._process.stdin is not None  # noqa: S101  for the type checker
        try:
            with self._process.stdin as stdin:
                stdin.write(json.dumps(request).encode("ascii"))
        except BrokenPipeError:
            pass  # `answer` reports that the child ended

    def answer(self, seconds: float) -> pa.Table | str:
        """Return the counters of the next log, or PyDarshan's error. Raises _DeadChildError."""
        deadline = time.monotonic() + seconds + (_BEGIN_SECONDS if self._first else 0)
        self._first = False
        header = self._read_header(deadline)
        data = self._read(header["bytes"], deadline)
        if "error" in header:
            return f"PyDarshan: {header['error']}"
        try:
            return pa.ipc.open_stream(data).read_all()
        except pa.ArrowException as error:
            raise _DeadChildError(f"PyDarshan's answer cannot be read: {error}") from None

    def end(self) -> None:
        """End the process, if it has not."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None  # noqa: S101  for the type checker
        self._process.stdout.close()
        self._errors.close()

    def _read_header(self, deadline: float) -> dict[str, Any]:
        """Read the line of JSON that precedes an answer. Raises _DeadChildError."""
        while b"\n" not in self._buffer:
            if len(self._buffer) > _MAX_LINE_BYTES:
                raise _DeadChildError("PyDarshan's process sends an invalid answer")
            self._fill_buffer(deadline)
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            header = json.loads(line)
            if 0 <= int(header["bytes"]) <= _MAX_ANSWER_BYTES:
                return dict(header)
        except (ValueError, KeyError, TypeError):
            pass
        raise _DeadChildError("PyDarshan's process sends an invalid answer")

    def _read(self, n: int, deadline: float) -> bytes:
        pieces = [self._buffer]
        size = len(self._buffer)
        while size < n:
            self._buffer = b""
            self._fill_buffer(deadline)
            pieces.append(self._buffer)
            size += len(self._buffer)
        whole = b"".join(pieces)
        self._buffer = whole[n:]
        return whole[:n]

    def _fill_buffer(self, deadline: float) -> None:
        """Read from the child until the deadline. Raises _DeadChildError."""
        assert self._process.stdout is not None  # noqa: S101  for the type checker
        pipe = self._process.stdout.fileno()
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise _DeadChildError("PyDarshan took too long and was ended")
        piece = os.read(pipe, 1 << 20)
        if not piece:
            raise _DeadChildError(self._how_it_ended())
        self._buffer += piece

    def _how_it_ended(self) -> str:
        """Return the exit status of the child and its last line on standard error."""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "PyDarshan's process closed its pipe"
        self._errors.seek(0)
        lines = self._errors.read()[-4096:].decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
        how = f"with {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
        return f"PyDarshan's process ended {how}; its last output: {last[:300]}"
