"""Processes that answer users' queries, with limits of time, memory and number.

A query of DuckDB cannot always be interrupted, and DuckDB does not count all memory that it uses.
The server therefore runs no query itself: `sql_child` does, in processes that the kernel limits and
that the server ends. So a slow query delays other queries at most, no page.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from contextlib import suppress
from pathlib import Path
from typing import Any

from dask_strata.errors import QueryError, StrataError
from dask_strata.server import sql_child

#: Number of queries that are answered at the same time, and that wait for their turn.
_PROCESSES = 2
_WAITING = 16

#: Time in seconds that a process has to start, and to report that a query took too long.
_START_SECONDS = 120
_GRACE_SECONDS = 1

#: Time in seconds after which an unused process ends.
_IDLE_SECONDS = 600

#: Each arena of glibc would reserve 64 MiB of the memory that a query may use.
_ENVIRONMENT = {"MALLOC_ARENA_MAX": "2"}


class BusyError(StrataError):
    """The server is answering as many queries as it can."""


class SqlProcesses:
    """Answers queries in a few processes, which are started when they are needed.

    Parameters
    ----------
    seconds : float
        Time limit of a query, and of its wait for a process.
    open_seconds : float
        Time limit for opening a run and the tables that a query names.
    """

    def __init__(self, seconds: float, open_seconds: float) -> None:
        self._seconds, self._open_seconds = seconds, open_seconds
        self._slots = asyncio.Semaphore(_PROCESSES)
        self._waiting = 0
        self._unused: dict[_Child, tuple[Path, asyncio.TimerHandle]] = {}
        self._children: set[_Child] = set()

    async def answer(
        self, folder: Path, query: str, form: str | None = None, file: Path | None = None
    ) -> dict[str, Any]:
        """Return ``columns``, ``rows`` and, where there are more rows, ``more``.

        If the caller is cancelled, the query ends.

        Parameters
        ----------
        folder : Path
            Folder of the run.
        query : str
            The query, in SQL.
        form : str, optional
            Name of a format: the rows are written to a file then.
        file : Path, optional
            The file, in a folder of the server's own.

        Raises
        ------
        QueryError
            The query is wrong, does more than read, or exceeds a limit.
        BusyError
            Other queries use all processes.
        """
        busy = BusyError(
            "The server is busy with other queries.", hint="Send the query again in a moment."
        )
        if self._waiting >= _WAITING:
            raise busy
        self._waiting += 1
        try:
            await asyncio.wait_for(self._slots.acquire(), self._seconds)
        except asyncio.TimeoutError:
            raise busy from None
        finally:
            self._waiting -= 1
        try:
            request = {"folder": _absolute(folder), "query": query, "seconds": self._seconds}
            if file is not None:
                request |= {"form": form, "file": str(file)}
            return await self._answer(folder, request)
        finally:
            self._slots.release()

    async def close(self) -> None:
        """End all processes and remove their temporary files."""
        for child in [*self._unused]:
            self._end(child)
        for child in self._children:
            child.kill()
        await asyncio.gather(*(child.removed for child in self._children))

    async def _answer(self, folder: Path, request: dict[str, Any]) -> dict[str, Any]:
        child = self._take(folder) or await self._start()
        keep = False
        try:
            answer = await self._ask(child.process, request)
            keep = not answer["last"]
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            raise QueryError(
                "SQL: the process of the query ended. The query probably needed more than "
                f"{sql_child.MEMORY_BYTES >> 30} GiB of memory."
            ) from None
        finally:
            if keep:
                end = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._end, child)
                self._unused[child] = folder, end
            else:
                child.kill()
        if answer["error"] is not None:
            message, hint = answer["error"]
            raise QueryError(message, hint=hint)
        return answer

    async def _ask(self, process: Process, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of a process; opening the run and the query have a time limit each."""
        try:
            answer = await asyncio.wait_for(_exchange(process, request), self._open_seconds)
        except asyncio.TimeoutError:
            raise QueryError(
                f"SQL: opening the run took more than {self._open_seconds:g} s; the query did "
                "not start.",
                hint="Whoever starts the server can raise this limit with --open-seconds.",
            ) from None
        if "opened" not in answer:  # the run cannot be opened
            return answer
        try:
            return await asyncio.wait_for(_exchange(process, None), self._seconds + _GRACE_SECONDS)
        except asyncio.TimeoutError:
            raise QueryError(f"SQL: the query took more than {self._seconds:g} s.") from None

    def _take(self, folder: Path) -> _Child | None:
        """Return an unused process, one that has the run open if there is one."""
        for child in sorted(self._unused, key=lambda c: self._unused[c][0] != folder):
            _, end = self._unused.pop(child)
            end.cancel()
            if child.process.returncode is None:
                return child
        return None

    def _end(self, child: _Child) -> None:
        _, end = self._unused.pop(child)
        end.cancel()
        child.kill()

    async def _start(self) -> _Child:
        folder = _make_folder()
        try:
            process = await create_subprocess_exec(
                sys.executable,
                "-m",
                sql_child.__name__,
                *([] if folder is None else [folder]),
                stdin=PIPE,
                stdout=PIPE,
                limit=2 * sql_child.ANSWER_BYTES,
                # Modules in the current folder could shadow Python's.
                cwd="/",
                env=os.environ | _ENVIRONMENT | ({} if folder is None else {"TMPDIR": folder}),
                # Ctrl-C on the terminal ends the server only, which ends this process.
                start_new_session=True,
            )
        except BaseException:
            _remove(folder)
            raise
        child = _Child(process, folder)
        self._children.add(child)
        child.removed.add_done_callback(lambda _: self._children.discard(child))
        try:
            await asyncio.wait_for(_exchange(process, None), _START_SECONDS)
        except BaseException as error:
            child.kill()
            if isinstance(error, (asyncio.TimeoutError, asyncio.IncompleteReadError)):
                raise StrataError("The process that answers queries does not start.") from None
            raise
        return child


class _Child:
    """A process, and the folder of its temporary files, which is removed after its end.

    A process that is killed cannot remove its files.
    """

    def __init__(self, process: Process, folder: str | None) -> None:
        self.process = process
        self.removed = asyncio.ensure_future(self._remove_after_end(folder))

    async def _remove_after_end(self, folder: str | None) -> None:
        await self.process.wait()
        await asyncio.to_thread(_remove, folder)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()


def _make_folder() -> str | None:
    try:
        return tempfile.mkdtemp(prefix="dask-strata-")
    except OSError:  # without temporary files, queries use memory only
        return None


def _remove(folder: str | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


async def _exchange(process: Process, request: dict[str, Any] | None) -> dict[str, Any]:
    """Send a request, if there is one, and return the next line of the process."""
    assert process.stdin is not None  # noqa: S101  for the type checker
    assert process.stdout is not None  # noqa: S101  for the type checker
    if request is not None:
        process.stdin.write(json.dumps(request).encode("ascii") + b"\n")
        await process.stdin.drain()
    line = await process.stdout.readuntil(b"\n")
    # Parsing megabytes would delay other requests.
    return dict(await asyncio.to_thread(json.loads, line))


def _absolute(folder: Path) -> str:
    return str(folder.absolute())  # the process has another current folder
