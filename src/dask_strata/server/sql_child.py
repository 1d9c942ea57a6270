"""Answer users' queries: the program of a child process.

`sql` runs this module with ``python -m``, so that the kernel limits the memory and the processor
time of a query, and so that a query can be ended at any moment. Standard input has a request per
line, standard output an answer per line, both as JSON; before the answer, a line states that the
run is open and the query starts. The argument is the folder of the process's temporary files.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from dask_strata.errors import QueryError, StrataError
from dask_strata.report.rows import plain_rows, write_rows
from dask_strata.run import Run, open_run

if TYPE_CHECKING:
    import pyarrow as pa

#: Number of rows of an answer.
ROWS = 1_000

#: Size of an answer, in bytes: of its JSON, and of the markup around each value.
ANSWER_BYTES = 4 << 20
_MARKUP_BYTES = 16

#: Memory of a query, in bytes, beside the tables that it reads.
MEMORY_BYTES = 1 << 30

#: Part of it that DuckDB does not count, in bytes: its limit is that of its own buffers.
_UNCOUNTED_BYTES = 64 << 20

#: Memory, in bytes, that a process may keep after a query; then another takes its place.
_KEPT_BYTES = 256 << 20

#: Number of processors that a query may use.
_PROCESSORS = 4

#: Number of rows, and bytes, of an answer that is written to a file.
FILE_ROWS = 1_000_000
FILE_BYTES = 256 << 20

_TOO_LARGE = (
    f"SQL: the answer is larger than {ANSWER_BYTES >> 20} MiB: select fewer or shorter values."
)


def main() -> None:
    """Answer requests until standard input ends."""
    # Keep the output of libraries out of the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    processors = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    if len(processors) > _PROCESSORS:
        os.sched_setaffinity(0, random.sample(processors, _PROCESSORS))
    _limit(resource.RLIMIT_CORE, 0)
    queries = Queries(partial(_send, answers, {"opened": True}))
    try:
        _send(answers, {"ready": True})
        for line in sys.stdin.buffer:
            answer = queries.answer(json.loads(line))
            _send(answers, answer)
            if answer["last"]:
                break
    finally:
        # A server that was killed removes no folder.
        for folder in sys.argv[1:]:
            shutil.rmtree(folder, ignore_errors=True)


def _send(answers: Any, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer).encode("ascii") + b"\n")
    answers.flush()


class Queries:
    """Answers queries about one run after the other; the last run is kept open.

    Parameters
    ----------
    opened : callable
        Called before each query, when the run and the tables of the query are open.
    """

    def __init__(self, opened: Callable[[], None]) -> None:
        self._opened = opened
        self._run: Run | None = None
        self._idle_bytes: int | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request, or its error.

        Parameters
        ----------
        request : dict
            ``folder`` of the run, ``query`` in SQL, and its time limit in ``seconds``; ``form``
            and ``file``, if the answer is a file.
        """
        try:
            found = self._rows(request)
        except StrataError as error:
            found = {"error": [error.message, error.hint]}
        except MemoryError:
            found = {"error": ["SQL: the query needs more memory than it may use.", None]}
        except Exception as error:  # noqa: BLE001  values that Python cannot represent, for example
            lines = str(error).splitlines() or [type(error).__name__]
            found = {"error": [f"SQL: the answer cannot be shown: {lines[0][:400]}", None]}
        return found | {"last": self._kept_bytes() > _KEPT_BYTES}

    def _kept_bytes(self) -> int:
        return (
            0
            if self._idle_bytes is None
            else psutil.Process().memory_info().rss - (self._idle_bytes)
        )

    def _rows(self, request: dict[str, Any]) -> dict[str, Any]:
        folder, seconds = Path(request["folder"]), request["seconds"]
        file = request.get("file")
        if self._run is None or self._run.path != folder:
            self._run, self._idle_bytes = open_run(folder), None
            self._run.sql_memory_limit = f"{MEMORY_BYTES - _UNCOUNTED_BYTES}B"
        elif self._run.refresh():
            self._idle_bytes = None
        run, late = self._run, threading.Event()

        def interrupt() -> None:
            late.set()
            run.interrupt()

        timer = threading.Timer(seconds, interrupt)
        timer.daemon = True

        def start() -> AbstractContextManager[None]:
            self._opened()
            timer.start()
            return self._limits(seconds)

        run.sql_limits = start
        try:
            most = ROWS if file is None else FILE_ROWS
            table = run.sql(request["query"], limit=most + 1).to_arrow()
            with self._limits(seconds):
                return answer_of(table) if file is None else _written(table, request["form"], file)
        except QueryError as error:
            if late.is_set():
                raise QueryError(f"SQL: the query took more than {seconds:g} s.") from error
            raise
        finally:
            timer.cancel()

    @contextmanager
    def _limits(self, seconds: float) -> Iterator[None]:
        """Limit the process to the memory and time of a query, in addition to its previous use."""
        memory = psutil.Process().memory_info()
        if self._idle_bytes is None:
            self._idle_bytes = memory.rss
        kept = max(0, memory.rss - self._idle_bytes)
        used = resource.getrusage(resource.RUSAGE_SELF)
        processors = min(_PROCESSORS, os.cpu_count() or 1)
        # A query of a process whose parent was killed ends by this limit.
        end = used.ru_utime + used.ru_stime + (seconds + 1) * processors
        _limit(resource.RLIMIT_CPU, int(end) + 1)
        _limit(resource.RLIMIT_AS, memory.vms + MEMORY_BYTES - kept)
        try:
            yield
        finally:
            _limit(resource.RLIMIT_AS, None)
            _limit(resource.RLIMIT_CPU, None)


def _limit(kind: int, value: int | None) -> None:
    """Set the soft limit; None removes it. The hard limit stays, as it could not be raised."""
    _, hard = resource.getrlimit(kind)
    wanted = resource.RLIM_INFINITY if value is None else value
    if hard != resource.RLIM_INFINITY:
        wanted = hard if value is None else min(value, hard)
    with suppress(ValueError, OSError):  # macOS does not limit the address space
        resource.setrlimit(kind, (wanted, hard))


def answer_of(table: pa.Table) -> dict[str, Any]:
    """Return names of columns and the first rows of a table, in at most `ANSWER_BYTES`.

    Parameters
    ----------
    table : pa.Table
        The answer to a query.

    Raises
    ------
    QueryError
        The names or the first row exceed the limit.

    Examples
    --------
    >>> import pyarrow
    >>> answer_of(pyarrow.table({"n": [1, 2]}))
    {'columns': ['n'], 'rows': [[1], [2]], 'more': '', 'error': None}
    """
    columns = table.column_names
    size = len(json.dumps(columns)) + _MARKUP_BYTES * len(columns)
    rows: list[list[Any]] = []
    more = f"the first {ROWS:,} rows" if len(table) > ROWS else ""
    done, most = 0, min(len(table), ROWS)
    while done < most:
        # Convert few rows of long values at a time: as objects they are larger.
        part = table.slice(done, min(100, most - done))
        while len(part) > 1 and part.nbytes > ANSWER_BYTES:
            part = part.slice(0, len(part) // 2)
        found = [] if part.nbytes > ANSWER_BYTES else plain_rows(part)
        for row in found:
            size += len(json.dumps(list(row.values()))) + _MARKUP_BYTES * len(columns)
            if size > ANSWER_BYTES:
                break
            rows.append(list(row.values()))
        done += len(part)
        if len(rows) < done:
            more = f"the first {len(rows):,} rows, {ANSWER_BYTES >> 20} MiB"
            break
    if not rows and (len(table) or size > ANSWER_BYTES):
        raise QueryError(_TOO_LARGE)
    return {"columns": columns, "rows": rows, "more": more, "error": None}


def _written(table: pa.Table, form: str, file: str) -> dict[str, Any]:
    """Write rows to a file, and return the number of rows.

    Raises
    ------
    QueryError
        The file would exceed a limit.
    """
    too_large = QueryError(
        f"SQL: the result has more than {FILE_ROWS:,} rows or {FILE_BYTES >> 20} MiB: select fewer."
    )
    if len(table) > FILE_ROWS:
        raise too_large
    before = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (FILE_BYTES, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    )
    try:
        write_rows(table, form, Path(file))
    except StrataError:
        if Path(file).exists() and Path(file).stat().st_size >= FILE_BYTES:
            raise too_large from None
        raise
    finally:
        resource.setrlimit(
            resource.RLIMIT_FSIZE, (before, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
        )
    return {"columns": table.column_names, "rows": [], "more": "", "n": len(table), "error": None}


if __name__ == "__main__":
    main()
