"""Counters of Darshan's logs: asked of a child process, which may crash, hang or lie."""

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

#: How long the child may take to begin, and for a log: a second more for each so many bytes.
_BEGIN_SECONDS = 60.0
_LOG_SECONDS = 60.0
_BYTES_A_SECOND = 1 << 20

#: Threads of its numerical library take address space, of which the child has little.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

#: More than this no log has; who says so is believed no further.
_MAX_ANSWER_BYTES = 1 << 30
_MAX_LINE_BYTES = 1 << 16


@dataclass(frozen=True)
class Wanted:
    """A log whose counters are wanted, and the modules that have them."""

    path: Path
    modules: tuple[str, ...]


class _DeadChildError(Exception):
    """The child ended, hangs, or answers what it should not; the text says what."""


def available() -> bool:
    """Return whether PyDarshan is installed."""
    return find_spec("darshan") is not None


def read_counters(
    wanted: Sequence[Wanted], log_seconds: float = _LOG_SECONDS
) -> Iterator[pa.Table | str]:
    """Yield the counters of each log, in order, or why there are none.

    Parameters
    ----------
    wanted : sequence of Wanted
        The logs.
    log_seconds : float, optional
        How long one may take, for a start.
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
        # Elsewhere than here, so that no module of this folder is taken for one of Python's.
        self._process = subprocess.Popen(  # noqa: S603  it is ourselves
            [sys.executable, "-m", counters_child.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=folder,
            env=os.environ | _ONE_THREAD,
            start_new_session=True,
        )
        self._waiting = b""
        self._first = True
        asked = [{"path": str(w.path.absolute()), "modules": w.modules} for w in wanted]
        assert self._process.stdin is not None  # noqa: S101  for the type checker
        try:
            with self._process.stdin as stdin:
                stdin.write(json.dumps(asked).encode("ascii"))
        except BrokenPipeError:
            pass  # it is told when the answer does not come

    def answer(self, seconds: float) -> pa.Table | str:
        """Return the next answer. Raises _DeadChildError."""
        deadline = time.monotonic() + seconds + (_BEGIN_SECONDS if self._first else 0)
        self._first = False
        facts = self._facts(deadline)
        data = self._take(facts["bytes"], deadline)
        if "error" in facts:
            return f"PyDarshan: {facts['error']}"
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

    def _facts(self, deadline: float) -> dict[str, Any]:
        while b"\n" not in self._waiting:
            if len(self._waiting) > _MAX_LINE_BYTES:
                raise _DeadChildError("PyDarshan's process answers nonsense")
            self._more(deadline)
        line, _, self._waiting = self._waiting.partition(b"\n")
        try:
            facts = json.loads(line)
            if 0 <= int(facts["bytes"]) <= _MAX_ANSWER_BYTES:
                return dict(facts)
        except (ValueError, KeyError, TypeError):
            pass
        raise _DeadChildError("PyDarshan's process answers nonsense")

    def _take(self, n: int, deadline: float) -> bytes:
        pieces = [self._waiting]
        have = len(self._waiting)
        while have < n:
            self._waiting = b""
            self._more(deadline)
            pieces.append(self._waiting)
            have += len(self._waiting)
        whole = b"".join(pieces)
        self._waiting = whole[n:]
        return whole[:n]

    def _more(self, deadline: float) -> None:
        assert self._process.stdout is not None  # noqa: S101  for the type checker
        pipe = self._process.stdout.fileno()
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise _DeadChildError("PyDarshan hangs on it, and was ended")
        piece = os.read(pipe, 1 << 20)
        if not piece:
            raise _DeadChildError(self._last_words())
        self._waiting += piece

    def _last_words(self) -> str:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "PyDarshan's process closed its pipe"
        self._errors.seek(0)
        lines = self._errors.read()[-4096:].decode("utf-8", "replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
        how = f"with {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
        return f"PyDarshan's process ended {how}; its last words: {said[:300]}"
