"""The thread that turns what was seen into frames, one for each recorded Dask server.

Sources hand over batches of rows, samplers are asked at intervals, single rows are added
from anywhere. Every flush interval all of it becomes one frame, which goes to the sink in
one piece. Nothing here raises into Dask or waits for it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dask_strata.config import Settings
from dask_strata.recorder.accounting import process_usage
from dask_strata.recorder.pump import Pump
from dask_strata.store.frames import Batch, Encoder
from dask_strata.store.manifest import SEGMENTS, SUFFIX, new_run_id
from dask_strata.store.place import place
from dask_strata.store.writer import CallSink, FileSink, Sink

logger = logging.getLogger("dask_strata")

Source = Callable[[], Iterable[Batch]]

#: How long the end of a recording waits for a disk or network that is stuck.
_LAST_WRITE_SECONDS = 5

#: Single rows waiting for the next flush; more than this many are dropped and counted.
MAX_WAITING_ROWS = 100_000


#: Runs whose trouble with writing this process has told of: once is enough, for all its servers.
_told: set[str] = set()


def now_ns() -> int:
    """Return the wall clock in nanoseconds since the epoch."""
    return time.time_ns()


def to_ns(seconds: float) -> int:
    """Return a time of Dask's, in seconds since the epoch, as nanoseconds."""
    return int(seconds * 1e9)


def open_sink(
    folder: Path, process: str, run: str, send: Callable[[bytes], None] | None, header: bytes
) -> Sink:
    """Return a file in the run's folder, or the comm where the folder cannot be written.

    Raises
    ------
    OSError
        The folder cannot be written, and there is no comm to fall back on.
    """
    try:
        if run not in (folder / "run.json").read_text(encoding="utf-8"):
            raise FileNotFoundError(f"{folder} is another run")
        return FileSink(folder / SEGMENTS / f"{process}{SUFFIX}", header)
    except (OSError, UnicodeDecodeError):
        if send is None:
            raise
        return CallSink(send, header)


class Engine:
    """Records one Dask server or client.

    Parameters
    ----------
    role : str
        scheduler, worker, nanny or client.
    run : str
        Id of the run.
    folder : Path
        Folder of the run, as this process sees it.
    settings : Settings
        What to do and how often.
    send : callable, optional
        Takes ``(process, frame)`` where the folder cannot be written.

    Raises
    ------
    OSError
        The folder cannot be written, and there is no ``send``.
    """

    def __init__(
        self,
        role: str,
        run: str,
        folder: Path,
        settings: Settings,
        send: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self.role, self.run, self.folder, self.settings = role, run, folder, settings
        self.process = f"{role}-{new_run_id()}"
        self.sources: list[Source] = []
        self.facts: list[Callable[[], None]] = []
        self.samplers: list[Callable[[], None]] = [self._add_overhead, self._add_usage]
        self.on_finish: list[Callable[[], None]] = []
        self.ended: Callable[[], str | None] = lambda: None
        self.rows = 0
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self._flush_lock = threading.RLock()
        self._stop = threading.Event()
        self._ending = False
        self._end_reason = ""
        self._finished = False
        self._when_finished: Callable[[], None] = lambda: None
        self._reported_drops = 0
        self._failures: dict[str, int] = {}
        self._cpu_at_start = time.process_time()
        self._own_cpu = 0.0
        who = {"role": role, "run": run, "sample_interval_seconds": settings.sample_interval}
        self._encoder = Encoder(self.process, {**who, **place()})
        header = self._encoder.header()
        to_comm = None if send is None else lambda frame: send(self.process, frame)
        self.sink = open_sink(folder, self.process, run, to_comm, header)
        name = f"dask-strata-{self.process}"
        self._pump = Pump(self.sink, f"{name}-writer", self._tell)
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._pid = os.getpid()

    def start(self, **facts: Any) -> None:
        """Begin, with the facts of the row in `processes`."""
        import dask
        import distributed

        self.add(
            "processes",
            role=self.role,
            host=socket.gethostname(),
            pid=os.getpid(),
            start=now_ns(),
            python=sys.version.split()[0],
            dask=dask.__version__,
            distributed=distributed.__version__,
            transport=self.sink.transport,
            **facts,
        )
        self._run_guarded(self._add_usage)
        self._pump.start()
        self.flush()
        atexit.register(self.finish, "process exit")
        self._thread.start()

    def add(self, table: str, **row: Any) -> None:
        """Add one row; from any thread, never raises."""
        if len(self._waiting) < MAX_WAITING_ROWS:
            self._waiting.append((table, row))
        else:
            self._failures["rows waiting beyond the bound"] = (
                self._failures.get("rows waiting beyond the bound", 0) + 1
            )

    def flush(self) -> None:
        """Hand everything seen so far to the writing thread; from any thread, never raises."""
        if os.getpid() != self._pid:  # a fork of a recorded process is not recorded
            return
        with self._flush_lock:
            if self._finished:
                return
            batches = self._single_rows()
            for source in self.sources:
                batches.extend(self._guarded(source))
            self._report_drops()
            batches.extend(self._single_rows())
            batches = [batch for batch in batches if batch.n]
            if batches:
                self._put(batches)

    def _put(self, batches: list[Batch]) -> None:
        try:
            self._pump.put(self._encoder.frame(batches), sum(batch.n for batch in batches))
        except Exception as error:  # noqa: BLE001  one odd value must not cost the other tables' rows
            if len(batches) > 1:
                for batch in batches:
                    self._put([batch])
                return
            if batches[0].n > 1:
                for half in batches[0].halves():
                    self._put([half])
                return
            reason = f"{batches[0].table} could not be encoded: {type(error).__name__}: {error}"
            self._failures[reason] = self._failures.get(reason, 0) + batches[0].n
            return
        self.rows += sum(batch.n for batch in batches)

    def _single_rows(self) -> list[Batch]:
        tables: dict[str, list[dict[str, Any]]] = {}
        for _ in range(len(self._waiting)):
            table, row = self._waiting.popleft()
            tables.setdefault(table, []).append(row)
        return [
            batch
            for table, rows in tables.items()
            for batch in self._guarded(lambda t=table, r=rows: (Batch.of_rows(t, r),))  # type: ignore[misc]
        ]

    def _run_guarded(self, action: Callable[[], None]) -> None:
        def nothing_to_return() -> Iterable[Any]:
            action()
            return ()

        self._guarded(nothing_to_return, getattr(action, "__qualname__", "sampler"))

    def _guarded(self, source: Callable[[], Iterable[Any]], what: str = "") -> list[Any]:
        found: list[Any] = []
        try:
            for item in source():
                found.append(item)  # noqa: PERF402  what came before a failure is kept
        except Exception as error:  # whatever fails in a recorder must not fail the run
            what = what or getattr(source, "__qualname__", type(source).__name__)
            name = f"{what}: {type(error).__name__}: {error}"
            if name not in self._failures:
                logger.warning(
                    "dask-strata lost records of %s: %s", self.process, name, exc_info=True
                )
            self._failures[name] = self._failures.get(name, 0) + 1
        return found

    def _report_drops(self) -> None:
        dropped = self._pump.dropped_rows - self._reported_drops
        if dropped and self.sink.trouble is None:
            self._reported_drops += dropped
            self.add(
                "losses",
                time=now_ns(),
                what="rows",
                count=dropped,
                reason="could not be written",
                where=self.process,
            )
        for reason in list(self._failures):
            self.add(
                "losses",
                time=now_ns(),
                what="recorder",
                count=self._failures.pop(reason),
                reason=reason,
                where=self.process,
            )

    def _tell(self) -> None:
        if self.sink.trouble is not None and self.run not in _told:
            _told.add(self.run)
            logger.warning(
                "dask-strata cannot write the records of %s: %s. The workflow goes on; "
                "`dask-strata check %s` will say what is missing.",
                self.process,
                self.sink.trouble,
                self.folder,
            )

    def _loop(self) -> None:
        interval, sampling = self.settings.flush_interval, self.settings.sample_interval
        next_sample = 0.0
        while not self._stop.wait(interval):
            self._gather_facts()
            if time.monotonic() >= next_sample:
                for sampler in self.samplers:
                    self._run_guarded(sampler)
                next_sample = time.monotonic() + sampling
            self.flush()
            self._own_cpu = time.thread_time()
            reason = self.ended()
            if reason is not None:
                self.finish(reason, wait=False)
        self._write_the_end()

    def _gather_facts(self) -> None:
        while self.facts:
            self._run_guarded(self.facts.pop())

    def _write_the_end(self) -> None:
        self._gather_facts()
        self._run_guarded(self._add_overhead)
        self._run_guarded(self._add_usage)
        self.add("processes", stop=now_ns(), exit_reason=self._end_reason)
        with self._flush_lock:
            self.flush()
            self.flush()  # what the first one could not write, it counted
            self._finished = True
            self._pump.close()
            self.sources.clear()
            self.samplers.clear()
        self._pump.join(_LAST_WRITE_SECONDS)
        atexit.unregister(self.finish)
        self._when_finished()

    def _add_overhead(self) -> None:
        self.add(
            "overheads",
            time=now_ns(),
            cpu_seconds=self._own_cpu,
            process_cpu_seconds=time.process_time() - self._cpu_at_start,
            written_bytes=self.sink.written_bytes,
            rows=self.rows,
        )

    def _add_usage(self) -> None:
        self.add("process_samples", time=now_ns(), **process_usage())

    async def finish_and_wait(self, reason: str) -> None:
        """Finish on the event loop's thread; it runs on while the last rows are written."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(done.set)

        self._when_finished = tell
        self.finish(reason, wait=False)
        if self._thread.is_alive():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(done.wait(), _LAST_WRITE_SECONDS)
            if done.is_set():
                self._thread.join()  # that was the last thing it did

    def finish(self, reason: str, *, wait: bool = True) -> None:
        """Let go of Dask's objects, and have the thread write the end; once, from any thread."""
        if os.getpid() != self._pid:
            return
        with self._flush_lock:
            if not self._ending:
                self._ending = True
                for action in self.on_finish:
                    self._run_guarded(action)
                self.on_finish.clear()
                self._end_reason = reason
                self._stop.set()
        # Also who comes second waits: a process that exits now must not cut the end off.
        if wait and threading.current_thread() is not self._thread:
            self._thread.join(timeout=_LAST_WRITE_SECONDS)

    @property
    def finished(self) -> bool:
        """Whether the recording has ended, or is about to."""
        return self._ending
