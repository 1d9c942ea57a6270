"""The recorder of one Dask server or client: a thread that turns rows into frames.

Sources return batches of rows, take samples and gather facts; single rows can be added from any
thread. At each flush interval the engine encodes all rows as one frame, and a second thread writes
it to the sink. Rows that take long to compute follow in a separate frame. No method raises into
Dask or blocks its event loop on a disk or a network.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from itertools import repeat
from operator import mul
from pathlib import Path
from typing import Any

from dask_strata import flushing
from dask_strata.config import VERSION, Settings
from dask_strata.recorder.pipeline import termination
from dask_strata.recorder.pipeline.anonymize import encoder_for
from dask_strata.recorder.pipeline.background import BackgroundTasks
from dask_strata.recorder.pipeline.comm import open_sink
from dask_strata.recorder.pipeline.errors import RecorderErrors
from dask_strata.recorder.pipeline.resource_usage import own_io, process_usage, thread_read_bytes
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.writer_thread import WriterThread
from dask_strata.store.manifest import new_run_id, process_identity
from dask_strata.store.segments.frames import Batch

#: Longest wait for the last write at the end of a recording.
_LAST_WRITE_SECONDS = 5

#: Pause between two looks whether the recorder's thread has ended.
_END_PAUSE_SECONDS = 0.005

#: Longest wait for unfinished background tasks at the end of a recording.
_LAST_FACTS_SECONDS = 3

#: Least pause between two flushes, as a share of the flush interval.
_LEAST_PAUSE = 1 / 4

#: Exit reason of a server or client that was not closed before its event loop.
LOOP_CLOSED = "event loop closed"

#: Bound on single rows between two flushes; rows beyond it are dropped and counted.
MAX_WAITING_ROWS = 100_000


#: Reason of an end that nothing but the end of the process explains, and reasons that a signal
#: explains better.
_PROCESS_EXIT = "process exit"
_ENDS_OF_PROCESS = (_PROCESS_EXIT, "closed")


def now_ns() -> int:
    """Return the wall clock in nanoseconds since the epoch."""
    return time.time_ns()


def to_ns(seconds: float) -> int:
    """Return a time in nanoseconds.

    Parameters
    ----------
    seconds : float
        Time in seconds since the epoch, as Dask has it.

    Examples
    --------
    >>> to_ns(1.5)
    1500000000
    """
    return int(seconds * 1e9)


def times_ns(times: Iterable[float]) -> list[int]:
    """Return times in nanoseconds, as `to_ns` does for each of them.

    >>> times_ns([1.5, 2])
    [1500000000, 2000000000]
    """
    # As `int` of each product, without a call of its type.
    return list(map(float.__trunc__, map(mul, times, repeat(1e9))))


def _one_batch(table: str, rows: list[dict[str, Any]]) -> tuple[Batch]:
    return (Batch.of_rows(table, rows),)


class Engine:
    """Records one Dask server or client.

    Parameters
    ----------
    role : str
        scheduler, worker, nanny or client.
    run_id : str
        Id of the run.
    folder : Path
        Folder of the run, as this process sees it.
    settings : Settings
        What to record and how often.
    send : callable, optional
        Takes ``(process, frame)``; used if the folder cannot be written.

    Attributes
    ----------
    process : str
        Id of this process in the record.
    sources : list of Source
        The sources of rows, in addition to the engine's own rows.
    observers : list of callable
        Called with each list of batches that was encoded, on the thread that flushes.
    loop : asyncio.AbstractEventLoop or None
        Event loop of the server, if `start` was called on it.
    stop_cluster : callable or None
        Ends the recordings of all processes of the cluster, if this is its scheduler's.
    kill_bytes : float or None
        Memory of the process beyond which a nanny kills it.
    rows : int
        Number of rows encoded so far.

    Raises
    ------
    OSError
        The folder cannot be written, and there is no ``send``.
    """

    def __init__(
        self,
        role: str,
        run_id: str,
        folder: Path,
        settings: Settings,
        send: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self.role, self.run_id, self.folder, self.settings = role, run_id, folder, settings
        self.process = f"{role}-{new_run_id()}"
        self._errors = RecorderErrors(self.process, run_id, folder)
        name = f"dask-strata-{self.process}"
        self.sources: list[Source] = []
        self.observers: list[Callable[[list[Batch]], None]] = []
        self._background = BackgroundTasks(f"{name}-facts", self._errors.call)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stop_cluster: Callable[[str], Coroutine[Any, Any, None]] | None = None
        self.kill_bytes: float | None = None
        self.rows = 0
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self._counts: deque[dict[str, Any]] = deque()
        self._flush_lock = threading.RLock()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._ending = False
        self._end_reason = ""
        self._finished = False
        self._cpu_at_start = time.process_time()
        self._own_cpu = 0.0
        origin = {"role": role, "run": run_id, "sample_interval_seconds": settings.sample_interval}
        self._encoder = encoder_for(settings, self.process, {**origin, **process_identity()})
        header = self._encoder.header()
        to_comm = None if send is None else lambda frame: send(self.process, frame)
        self.sink = open_sink(folder, self.process, run_id, to_comm, header)
        self._writer = WriterThread(
            self.sink, f"{name}-writer", self._after_write, settings.fsync_interval
        )
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._pid = os.getpid()

    def start(self, *sources: Source, **facts: Any) -> None:
        """Start the recording.

        Parameters
        ----------
        *sources : Source
            Sources of rows. More can be added to `sources` later, except for their `facts`.
        **facts
            Columns of this process's row in ``processes``.
        """
        import dask
        import distributed

        self.sources += sources
        for source in sources:
            for action in self._errors.collect(source.facts):
                self._background.append(action)
        self.add(
            "processes",
            role=self.role,
            host=socket.gethostname(),
            pid=os.getpid(),
            start=now_ns(),
            python=sys.version.split()[0],
            dask=dask.__version__,
            distributed=distributed.__version__,
            dask_strata=VERSION,
            transport=self.sink.transport,
            **facts,
        )
        with contextlib.suppress(RuntimeError):
            self.loop = asyncio.get_running_loop()
        self._errors.call(self._add_usage)
        self._writer.start()
        self.flush()
        atexit.register(self.finish, _PROCESS_EXIT)
        self._thread.start()
        self._background.start()
        self._add_threads()
        flushing.register(self.process, self)
        self._errors.call(termination.guard)

    def _add_threads(self) -> None:
        """Add the recorder's threads and, if `start` runs on it, the event loop's."""
        threads = dict.fromkeys(self._threads(), "recorder")
        if self.loop is not None:
            threads[threading.get_ident()] = "event loop"
        for thread, purpose in threads.items():
            self.add("process_threads", time=now_ns(), thread=thread, purpose=purpose)

    def _threads(self) -> list[int]:
        """Return the identities of the recorder's threads that have started."""
        threads = (self._thread, self._writer.thread, self._background.thread)
        return [thread.ident for thread in threads if thread.ident is not None]

    def add(self, table: str, **row: Any) -> None:
        """Add one row. Thread-safe; never raises.

        Parameters
        ----------
        table : str
            Name of the table.
        **row
            Values by column; missing columns are null.
        """
        if len(self._waiting) < MAX_WAITING_ROWS:
            self._waiting.append((table, row))
        else:
            self._errors.count("rows waiting beyond the bound")

    def call(self, action: Callable[[], None], name: str) -> None:
        """Call an action of a source; count and log an exception instead of raising it.

        Parameters
        ----------
        action : callable
            The action.
        name : str
            Its name in the row.
        """
        self._errors.call(action, name)

    def count(self, name: str, value: int, *, recorded: int, final: bool) -> None:
        """Add a row of ``counters``. Call it on the thread that produces the counted rows.

        The row is written in the same frame as the counted rows or in a later one. So the record
        of a killed process has no counter of rows that it lacks.

        Parameters
        ----------
        name : str
            Name of the counter in Dask.
        value : int
            Its value.
        recorded : int
            Number of counted events of which this process has recorded a row.
        final : bool
            Whether this is the last value.
        """
        row = {"time": now_ns(), "name": name, "value": value, "recorded": recorded}
        self._counts.append({**row, "final": final})

    @property
    def in_own_process(self) -> bool:
        """Whether this is the recorded process itself, and not a fork of it."""
        return os.getpid() == self._pid

    def flush(self) -> None:
        """Encode all rows so far and queue them for the writer thread. Thread-safe; never raises.

        Sources may keep rows that take long to compute for a later flush; see `Source.has_more`.
        """
        if not self.in_own_process:  # forks of a recorded process are not recorded
            return
        with self._flush_lock:
            if self._finished:
                return
            sources = list(self.sources)
            self._flush_from([self._take_counts, *(source.rows for source in sources)])
            self._flush_from([source.slow_rows for source in sources])

    def flush_soon(self) -> None:
        """Trigger a flush on the recorder's thread. Thread-safe; does not wait."""
        self._wake.set()

    def flush_all(self, seconds: float) -> bool:
        """Flush until no rows are left; return whether the sink has all of them. Never raises.

        Do not call it on the server's event loop, which may have to send the rows.

        Parameters
        ----------
        seconds : float
            Longest time to wait.
        """
        until = time.monotonic() + seconds
        dropped = self._writer.dropped_rows
        while True:
            if not self._flush_lock.acquire(timeout=max(until - time.monotonic(), 0.0)):
                return False
            try:
                self.flush()
            finally:
                self._flush_lock.release()
            more = self._has_more()
            if not any(more) and None not in more:
                handed_over = self._writer.handed_over(until - time.monotonic())
                return handed_over and self._writer.dropped_rows == dropped
            if None in more or time.monotonic() >= until:
                return False

    def _has_more(self) -> list[bool | None]:
        """Return for each source whether it has kept rows; None if it cannot answer."""
        return [self._errors.ask(source.has_more) for source in self.sources]

    def _take_counts(self) -> Iterable[Batch]:
        counts = [self._counts.popleft() for _ in range(len(self._counts))]
        return (Batch.of_rows("counters", counts),)

    def _flush_from(self, producers: list[Callable[[], Iterable[Batch]]]) -> None:
        batches = self._single_rows()
        for produce in producers:
            batches.extend(self._errors.collect(produce))
        for row in self._errors.take_losses(self._writer, self.sink.error):
            self.add("losses", **row)
        batches.extend(self._single_rows())
        batches = [batch for batch in batches if batch.n]
        if batches:
            self._put(batches)

    def _put(self, batches: list[Batch]) -> None:
        try:
            self._writer.put(self._encoder.frame(batches), sum(batch.n for batch in batches))
        except Exception as error:  # noqa: BLE001  an odd value must cost only its own row
            if len(batches) > 1:
                for batch in batches:
                    self._put([batch])
                return
            if batches[0].n > 1:
                for half in batches[0].halves():
                    self._put([half])
                return
            reason = f"{batches[0].table} could not be encoded: {type(error).__name__}: {error}"
            self._errors.count(reason, batches[0].n)
            return
        self.rows += sum(batch.n for batch in batches)
        for observe in self.observers:
            self._errors.call(partial(observe, batches), "count of encoded rows")

    def _single_rows(self) -> list[Batch]:
        tables: dict[str, list[dict[str, Any]]] = {}
        for _ in range(len(self._waiting)):
            table, row = self._waiting.popleft()
            tables.setdefault(table, []).append(row)
        return [
            batch
            for table, rows in tables.items()
            for batch in self._errors.collect(partial(_one_batch, table, rows), f"rows of {table}")
        ]

    def _after_write(self) -> None:
        self._errors.report(self.sink.error, self._writer.failed_syncs)

    def _loop(self) -> None:
        interval, sampling = self.settings.flush_interval, self.settings.sample_interval
        next_sample, pause = 0.0, interval
        while not self._stopped_within(pause):
            began = time.monotonic()
            self.flush()
            if began >= next_sample:
                next_sample = began + sampling
                with own_io():
                    self._sample()
            self._own_cpu = time.thread_time()
            if (reason := self._reason_to_end()) is not None:
                self.finish(reason, wait=False)
            # Subtract the flush's own time, so that the interval does not drift.
            pause = max(interval - (time.monotonic() - began), interval * _LEAST_PAUSE)
        self._write_end()

    def _reason_to_end(self) -> str | None:
        for source in self.sources:
            if (reason := self._errors.ask(source.end_reason)) is not None:
                return reason
        # Nothing can close a server or client after its event loop; do not keep it in memory.
        if self.loop is not None and self.loop.is_closed():
            return LOOP_CLOSED
        return None

    def _sample(self) -> None:
        sources = [source.sample for source in self.sources]
        for sample in (self._add_overhead, self._add_usage, *sources):
            self._errors.call(sample)

    def _stopped_within(self, seconds: float) -> bool:
        self._wake.wait(seconds)
        self._wake.clear()
        return self._stop.is_set()

    def _write_end(self) -> None:
        sources = list(self.sources)
        if self._background.finish(_LAST_FACTS_SECONDS):
            self.add(
                "losses",
                time=now_ns(),
                what="facts",
                reason="the recording ended before all facts of the process were gathered",
                where=self.process,
            )
        for source in sources:
            self._errors.call(source.finish)
        while any(self._has_more()):
            self.flush()
        self._errors.call(self._add_overhead)
        self._errors.call(self._add_usage)
        self.add("processes", stop=now_ns(), exit_reason=self._end_reason)
        with self._flush_lock:
            self.flush()
            self.flush()  # writes the losses that the first flush counted
            self._finished = True
            self._writer.close()
            self.sources.clear()
        self._writer.join(_LAST_WRITE_SECONDS)
        for source in sources:
            self._errors.call(source.after_last_row)
        flushing.unregister(self.process)
        self._errors.call(termination.release)
        atexit.unregister(self.finish)

    @property
    def dropped_rows(self) -> int:
        """Number of rows so far that could not be written."""
        return self._writer.dropped_rows

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the recorder so far, without that of the thread that writes."""
        of_sources = sum(source.cpu_seconds for source in self.sources)
        return self._own_cpu + self._background.cpu_seconds + of_sources

    def _add_overhead(self) -> None:
        self.add(
            "overheads",
            time=now_ns(),
            cpu_seconds=self.cpu_seconds,
            process_cpu_seconds=time.process_time() - self._cpu_at_start,
            written_bytes=self.sink.written_bytes,
            read_bytes=thread_read_bytes()
            + self._background.read_bytes
            + sum(source.read_bytes for source in self.sources),
            rows=self.rows,
        )

    def _add_usage(self) -> None:
        self.add("process_samples", time=now_ns(), **process_usage())

    async def finish_and_wait(self, reason: str) -> None:
        """Call `finish` on the event loop and wait for the last rows without blocking it.

        Parameters
        ----------
        reason : str
            Recorded as the process's ``exit_reason``.
        """
        self.finish(reason, wait=False)
        until = time.monotonic() + _LAST_WRITE_SECONDS
        while self._thread.is_alive() and time.monotonic() < until:  # noqa: ASYNC110  a thread
            await asyncio.sleep(_END_PAUSE_SECONDS)

    def finish(self, reason: str, *, wait: bool = True) -> None:
        """Detach from Dask's objects and make the recorder's thread write the last rows.

        Thread-safe; only the first call has an effect.

        Parameters
        ----------
        reason : str
            Recorded as the process's ``exit_reason``.
        wait : bool, optional
            Whether to wait up to 5 s for the last row.
        """
        if not self.in_own_process:
            return
        with self._flush_lock:
            if not self._ending:
                self._ending = True
                for source in self.sources:
                    self._errors.call(source.detach)
                self._end_reason = self._reason(reason)
                self._stop.set()
                self._wake.set()
        # A second caller waits, too: the process may exit when this returns.
        if wait and threading.current_thread() is not self._thread:
            self._thread.join(timeout=_LAST_WRITE_SECONDS)

    def _reason(self, reason: str) -> str:
        """Return why the process ends, as exactly as it is known: a signal, or a closed server."""
        if reason in _ENDS_OF_PROCESS and (received := termination.received()):
            return received
        if reason != _PROCESS_EXIT:
            return reason
        reasons = (self._errors.ask(source.end_reason) for source in self.sources)
        return next(filter(None, reasons), reason)

    def join(self, seconds: float) -> None:
        """Wait until the recorder's thread has ended.

        Parameters
        ----------
        seconds : float
            Longest time to wait.
        """
        self._thread.join(max(seconds, 0.0))

    @property
    def uses_loop(self) -> bool:
        """Whether the event loop sends the rows to the scheduler."""
        return self.sink.transport == "comm"

    @property
    def ended(self) -> bool:
        """Whether the recorder's thread has ended, so that nothing uses the sources any more."""
        return not self._thread.is_alive()

    @property
    def finished(self) -> bool:
        """Whether the recording is ending or has ended."""
        return self._ending
