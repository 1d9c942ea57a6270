"""The thread that turns what was seen into frames, one for each recorded Dask server.

Sources hand over batches of rows, samplers are asked at intervals, single rows are added
from anywhere. Every flush interval all of it becomes a frame, which goes to the sink in one
piece; what takes long to describe follows in one of its own. Nothing here raises into Dask or
waits for it.
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
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from dask_strata import __version__
from dask_strata.config import Settings
from dask_strata.recorder.accounting import process_usage
from dask_strata.recorder.facts import Gatherer
from dask_strata.recorder.left_out import encoder_for
from dask_strata.recorder.pump import Pump
from dask_strata.recorder.troubles import Troubles
from dask_strata.store.frames import Batch
from dask_strata.store.manifest import SEGMENTS, SUFFIX, new_run_id
from dask_strata.store.place import place
from dask_strata.store.writer import CallSink, FileSink, Sink

Source = Callable[[], Iterable[Batch]]

#: How long the end of a recording waits for a disk or network that is stuck.
_LAST_WRITE_SECONDS = 5

#: How long it waits for facts that are still being gathered, before it writes the rest.
_LAST_FACTS_SECONDS = 3

#: A flush that takes longer than its interval is followed by a pause of this part of it.
_LEAST_PAUSE = 1 / 4

#: Single rows waiting for the next flush; more than this many are dropped and counted.
MAX_WAITING_ROWS = 100_000


#: Those of this process that have begun and not written their end, by the name of the process.
_engines: WeakValueDictionary[str, Engine] = WeakValueDictionary()


def running() -> list[Engine]:
    """Return the engines that record in this process; in a fork of one there are none."""
    found = [reference() for reference in _engines.valuerefs()]
    return [e for e in found if e is not None and e.is_here]


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
        self._troubles = Troubles(self.process, run, folder)
        name = f"dask-strata-{self.process}"
        self.sources: list[Source] = []
        #: Sources of what takes long; `unfinished` tells whether one has more than it gave.
        self.slow_sources: list[Source] = []
        self.unfinished: list[Callable[[], bool]] = []
        self.facts = Gatherer(f"{name}-facts", self._troubles.run)
        self.samplers: list[Callable[[], None]] = [self._add_overhead, self._add_usage]
        self.on_finish: list[Callable[[], None]] = []
        #: What the recorder's thread does at the end.
        self.at_end: list[Callable[[], None]] = []
        #: What it does when the record has its last row: a process that ends may not let it.
        self.after_end: list[Callable[[], None]] = []
        self.ended: Callable[[], str | None] = lambda: None
        #: The event loop that the server runs on, if it is that of who starts this.
        self.loop: asyncio.AbstractEventLoop | None = None
        self.rows = 0
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self._counts: deque[dict[str, Any]] = deque()
        self._flush_lock = threading.RLock()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._ending = False
        self._end_reason = ""
        self._finished = False
        self._when_finished: Callable[[], None] = lambda: None
        self._cpu_at_start = time.process_time()
        self._own_cpu = 0.0
        who = {"role": role, "run": run, "sample_interval_seconds": settings.sample_interval}
        self._encoder = encoder_for(settings, self.process, {**who, **place()})
        header = self._encoder.header()
        to_comm = None if send is None else lambda frame: send(self.process, frame)
        self.sink = open_sink(folder, self.process, run, to_comm, header)
        self._pump = Pump(self.sink, f"{name}-writer", self._after_write, settings.fsync_interval)
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
            dask_strata=__version__,
            transport=self.sink.transport,
            **facts,
        )
        with contextlib.suppress(RuntimeError):
            self.loop = asyncio.get_running_loop()
        self._troubles.run(self._add_usage)
        self._pump.start()
        self.flush()
        atexit.register(self.finish, "process exit")
        self._thread.start()
        self.facts.start()
        _engines[self.process] = self

    def add(self, table: str, **row: Any) -> None:
        """Add one row; from any thread, never raises."""
        if len(self._waiting) < MAX_WAITING_ROWS:
            self._waiting.append((table, row))
        else:
            self._troubles.count("rows waiting beyond the bound")

    def count(self, name: str, value: int, *, recorded: int, final: bool) -> None:
        """Add a row of `counters`, ahead of what it counts; on the thread that makes that.

        It is written with what is taken after it, so that a record that is cut off has no counter
        of rows that it does not have.
        """
        row = {"time": now_ns(), "name": name, "value": value, "recorded": recorded}
        self._counts.append({**row, "final": final})

    @property
    def is_here(self) -> bool:
        """Whether this is the process that is recorded, and no fork of it."""
        return os.getpid() == self._pid

    def flush(self) -> None:
        """Hand what was seen so far to the writing thread; from any thread, never raises.

        Of what takes long to describe it hands over a part; see `unfinished`.
        """
        if not self.is_here:  # a fork of a recorded process is not recorded
            return
        with self._flush_lock:
            if self._finished:
                return
            self._flush_from([self._taken_counts, *self.sources])
            self._flush_from(self.slow_sources)

    def hurry(self) -> None:
        """Have the recorder's thread flush now; from any thread, waits for nothing."""
        self._wake.set()

    def flush_all(self, seconds: float) -> bool:
        """Flush until nothing is left, for so long at most; tell whether the sink has it all.

        Not on the event loop of the server, which may be needed for it. Never raises.
        """
        until = time.monotonic() + seconds
        dropped = self._pump.dropped_rows
        while True:
            if not self._flush_lock.acquire(timeout=max(until - time.monotonic(), 0.0)):
                return False
            try:
                self.flush()
            finally:
                self._flush_lock.release()
            if not self._has_more():
                handed_over = self._pump.handed_over(until - time.monotonic())
                return handed_over and self._pump.dropped_rows == dropped
            if time.monotonic() >= until:
                return False

    def _has_more(self) -> bool:
        return any(more() for more in self.unfinished)

    def _taken_counts(self) -> Iterable[Batch]:
        counts = [self._counts.popleft() for _ in range(len(self._counts))]
        return (Batch.of_rows("counters", counts),)

    def _flush_from(self, sources: list[Source]) -> None:
        batches = self._single_rows()
        for source in sources:
            batches.extend(self._troubles.guarded(source))
        for row in self._troubles.rows(self._pump, self.sink.trouble):
            self.add("losses", **row)
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
            self._troubles.count(reason, batches[0].n)
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
            for batch in self._troubles.guarded(lambda t=table, r=rows: (Batch.of_rows(t, r),))  # type: ignore[misc]
        ]

    def _after_write(self) -> None:
        self._troubles.tell(self.sink.trouble, self._pump.failed_syncs)

    def _loop(self) -> None:
        interval, sampling = self.settings.flush_interval, self.settings.sample_interval
        next_sample, pause = 0.0, interval
        while not self._stopped_within(pause):
            began = time.monotonic()
            self.flush()
            if began >= next_sample:
                next_sample = began + sampling
                for sampler in self.samplers:
                    self._troubles.run(sampler)
            self._own_cpu = time.thread_time()
            reason = self.ended()
            if reason is not None:
                self.finish(reason, wait=False)
            # What all this took is not to make older what waits for the next flush.
            pause = max(interval - (time.monotonic() - began), interval * _LEAST_PAUSE)
        self._write_the_end()

    def _stopped_within(self, seconds: float) -> bool:
        self._wake.wait(seconds)
        self._wake.clear()
        return self._stop.is_set()

    def _gather_the_rest(self) -> None:
        left = self.facts.finish(_LAST_FACTS_SECONDS)
        if left:
            self.add(
                "losses",
                time=now_ns(),
                what="facts",
                reason="the recording ended before all that is told of a process was gathered",
                where=self.process,
            )
        for action in self.at_end:
            self._troubles.run(action)

    def _write_the_end(self) -> None:
        self._gather_the_rest()
        while self._has_more():
            self.flush()
        self._troubles.run(self._add_overhead)
        self._troubles.run(self._add_usage)
        self.add("processes", stop=now_ns(), exit_reason=self._end_reason)
        with self._flush_lock:
            self.flush()
            self.flush()  # what the first one could not write, it counted
            self._finished = True
            self._pump.close()
            for each in (self.sources, self.slow_sources, self.unfinished, self.samplers):
                each.clear()
            self.at_end.clear()
        self._pump.join(_LAST_WRITE_SECONDS)
        for action in self.after_end:
            self._troubles.run(action)
        self.after_end.clear()
        _engines.pop(self.process, None)
        atexit.unregister(self.finish)
        self._when_finished()

    def _add_overhead(self) -> None:
        self.add(
            "overheads",
            time=now_ns(),
            cpu_seconds=self._own_cpu + self.facts.cpu_seconds,
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
                    self._troubles.run(action)
                self.on_finish.clear()
                self._end_reason = reason
                self._stop.set()
                self._wake.set()
        # Also who comes second waits: a process that exits now must not cut the end off.
        if wait and threading.current_thread() is not self._thread:
            self._thread.join(timeout=_LAST_WRITE_SECONDS)

    @property
    def finished(self) -> bool:
        """Whether the recording has ended, or is about to."""
        return self._ending
