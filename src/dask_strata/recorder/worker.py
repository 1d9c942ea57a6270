"""A worker's recorder: its state machine, transfers, spills and state over time."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

from distributed.core import Status

from dask_strata.config import Settings, read_settings, understood
from dask_strata.recorder.darshan_worker import note_darshan
from dask_strata.recorder.engine import Engine, now_ns, to_ns
from dask_strata.recorder.lag import LoopLag
from dask_strata.recorder.profiling import profile
from dask_strata.recorder.relay import sender
from dask_strata.recorder.running import RunTap
from dask_strata.recorder.statics import add_statics
from dask_strata.recorder.taps import follow
from dask_strata.recorder.text import clip, safe_repr, wire_keys
from dask_strata.schema import wire_key
from dask_strata.store.frames import Batch

logger = logging.getLogger("dask_strata")

#: Entries of the worker's log that say no more than the transitions they go with, which
#: have the same key and stimulus.
_REDUNDANT = frozenset({"put-in-memory", "ensure-task-exists"})

#: Entries that begin with their name; in all others it comes behind the key.
_NAME_FIRST = frozenset(
    {
        "free-keys",
        "gather-dependencies",
        "request-dep",
        "receive-dep",
        "receive-dep-failed",
        "busy-gather",
        "network-failure",
        "remove-worker",
    }
)

_TRANSITION_LENGTH = 7
_ENDED = (Status.closed, Status.failed)


class WorkerRecorder:
    """Records one worker; made and closed on its event loop.

    Parameters
    ----------
    worker : distributed.Worker
        The worker.
    spec : dict
        As the scheduler's recorder announced it: run, folder, settings.

    Raises
    ------
    SettingError
        The settings are not understood by this version.
    UnexpectedLogError
        The worker's logs are not as this version knows them.
    """

    def __init__(self, worker: Any, spec: dict[str, Any]) -> None:
        self._worker = worker
        self._address = worker.address
        settings = read_settings(understood(spec["settings"])[0])
        self._log, self._incoming, self._outgoing = follow(
            (worker.state, "log"),
            (worker, "transfer_incoming_log"),
            (worker, "transfer_outgoing_log"),
        )
        self._taps: list[Any] = [self._log, self._incoming, self._outgoing]
        try:
            self._record(worker, spec, settings)
        except BaseException:
            for tap in self._taps:
                tap.remove()
            raise

    def _record(self, worker: Any, spec: dict[str, Any], settings: Settings) -> None:
        operation = f"dask-strata-{spec['run']}"
        send = sender(worker.scheduler, operation, worker.loop)
        self._engine = engine = Engine("worker", spec["run"], Path(spec["folder"]), settings, send)
        self._recorded = 0
        self._n_transfers = 0
        self._first = worker.state.transition_counter
        self._lag = LoopLag(worker.loop)
        self._delay: float | None = None
        self._spills = SpillTap(worker, self._address)
        self._taps.append(self._spills)
        engine.sources += [self._entries, self._transfers, self._spills]
        if settings.attempts:
            runs = RunTap(worker, self._address, opens=settings.inputs)
            self._taps.append(runs)
            engine.sources.append(runs)
        engine.samplers += [self._count, self._sample]
        engine.facts.append(lambda: note_darshan(engine))
        engine.facts.append(lambda: add_statics(engine, spec))
        engine.on_finish.append(self._detach)
        engine.ended = lambda: "closed" if worker.status in _ENDED else None
        engine.start(
            address=self._address,
            name=str(worker.name),
            nthreads=worker.state.nthreads,
            memory_limit_bytes=worker.memory_manager.memory_limit or None,
            tap="log",
        )
        profile(engine)

    async def close(self) -> None:
        """Stop, at once if only the recording ends, else when the worker has closed.

        A worker that sends its records over its own connections has none to send the last
        ones by when it has closed: that one stops before.
        """
        if self._worker.status in (Status.running, Status.paused):
            await self._engine.finish_and_wait("detached")
        elif self._engine.sink.transport == "comm":
            await self._engine.finish_and_wait("closed")
        else:
            self._engine.flush()
            self._add_count(final=True)
            self._engine.flush()

    def _detach(self) -> None:
        self._engine.flush()
        self._add_count(final=True)
        for tap in self._taps:
            tap.remove()

    # Sources, on the recorder's thread.

    def _entries(self) -> Iterable[Batch]:
        transitions, others = [], []
        for entry in self._log.take():
            if len(entry) == _TRANSITION_LENGTH and isinstance(entry[4], dict):
                transitions.append(entry)
            elif not _is_redundant(entry):
                others.append(entry)
        if transitions:
            self._recorded += len(transitions)
            keys, starts, wanted, finals, _, stimuli, times = zip(*transitions, strict=True)
            yield Batch(
                "worker_transitions",
                len(transitions),
                {
                    "time": [to_ns(t) for t in times],
                    "worker": self._address,
                    "key": wire_keys(keys),
                    "start_state": list(starts),
                    "wanted_state": list(wanted),
                    "finish_state": list(finals),
                    "stimulus_id": list(stimuli),
                },
            )
        if others:
            rows = [_log_row(entry, self._address) for entry in others]
            yield Batch.of_rows("worker_log", rows)

    def _transfers(self) -> Iterable[Batch]:
        delay = self._worker.scheduler_delay
        if delay != self._delay:
            self._delay = delay
            self._engine.add(
                "clock_offsets",
                time=now_ns(),
                offset_seconds=delay,
                uncertainty_seconds=self._worker.latency / 2,
            )
        ends, rows = [], []
        for end, tap in (("incoming", self._incoming), ("outgoing", self._outgoing)):
            for entry in tap.take():
                self._n_transfers += 1
                rows += [
                    {"number": self._n_transfers, "key": wire_key(key), "nbytes": nbytes}
                    for key, nbytes in entry["keys"].items()
                ]
                row = _transfer_row(end, entry, self._address, delay)
                ends.append({"number": self._n_transfers, **row})
        if ends:
            yield Batch.of_rows("transfer_ends", ends)
            if rows:
                yield Batch.of_rows("transfer_end_keys", rows)

    # Samples, on the recorder's thread.

    def _count(self) -> None:
        # On the loop: within a transition Dask has counted what it has not logged yet.
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._worker.loop.add_callback(self._count_between)

    def _count_between(self) -> None:
        if not self._engine.finished:
            self._add_count(final=False)

    def _add_count(self, *, final: bool) -> None:
        value = self._worker.state.transition_counter - self._first
        self._engine.count("worker.transitions", value, recorded=self._recorded, final=final)

    def _sample(self) -> None:
        worker, recent = self._worker, self._worker.monitor.recent()
        managed, spilled = _data_bytes(worker)
        rss = int(recent["memory"])
        self._engine.add(
            "worker_samples",
            time=now_ns(),
            worker=self._address,
            seen_by="worker",
            status=worker.status.name,
            executing=worker.state.executing_count,
            ready=len(worker.state.ready),
            in_memory=len(worker.data),
            managed_bytes=managed,
            unmanaged_bytes=None if managed is None else max(0, rss - managed),
            spilled_bytes=spilled,
            rss_bytes=rss,
            cpu_percent=recent["cpu"],
            read_bytes_per_second=recent.get("host_disk_io.read_bps"),
            write_bytes_per_second=recent.get("host_disk_io.write_bps"),
            net_read_bytes_per_second=recent.get("host_net_io.read_bps"),
            net_write_bytes_per_second=recent.get("host_net_io.write_bps"),
            num_fds=recent.get("num_fds"),
            loop_lag_seconds=self._lag.measure(),
            transfer_incoming=worker.state.transfer_incoming_count,
            transfer_outgoing=worker.transfer_outgoing_count,
        )


def _data_bytes(worker: Any) -> tuple[int | None, int | None]:
    """Return bytes of results in memory and on disk; null where the store does not say."""
    fast = getattr(worker.data, "fast", None)
    total = getattr(fast, "total_weight", None)
    spilled = getattr(worker.data, "spilled_total", None)
    if total is None:
        return worker.state.nbytes, None
    return int(total), None if spilled is None else int(spilled.disk)


def _is_redundant(entry: tuple[Any, ...]) -> bool:
    """Tell entries that only announce the transitions behind them, of the same stimulus."""
    if len(entry) < 3:  # noqa: PLR2004
        return False
    first, second, third = entry[:3]
    if not isinstance(second, str):  # in a cluster of one process it may also be a list
        return bool(first == "free-keys")
    return second in _REDUNDANT or (second == "compute-task" and third == "released")


def _log_row(entry: tuple[Any, ...], worker: str) -> dict[str, Any]:
    """Read one entry of the worker's log; their forms differ, the last two items are the same."""
    *what, stimulus, when = entry
    row: dict[str, Any] = {
        "worker": worker,
        "stimulus_id": stimulus if isinstance(stimulus, str) else safe_repr(stimulus),
    }
    row["time"] = to_ns(when) if isinstance(when, float) else now_ns()
    # A key may be a name, too; but then its event follows, and not a list or an address.
    key_first = len(what) > 1 and isinstance(what[1], str) and "://" not in what[1]
    if what and isinstance(what[0], str) and what[0] in _NAME_FIRST and not key_first:
        row["event"], rest = what[0], what[1:]
    elif len(what) > 1 and isinstance(what[1], str):
        row["key"], row["event"], rest = wire_key(what[0]), what[1], what[2:]
    else:
        row["event"], rest = "other", what
    if rest:
        row["detail"] = clip(
            ", ".join(r if isinstance(r, str) else safe_repr(r, 10_000) for r in rest)
        )
    return row


def _transfer_row(end: str, entry: dict[str, Any], worker: str, delay: float) -> dict[str, Any]:
    """Read an entry of Dask's transfer logs, on the worker's own clock.

    Dask shifts start and stop to the scheduler's clock. In outgoing entries `middle` is not
    shifted, so that the shift is known exactly; in incoming ones it is the present delay.
    """
    start, stop = entry["start"], entry["stop"]
    if end == "outgoing":
        delay = (start + stop) / 2 - entry["middle"]
    return {
        "end": end,
        "start": to_ns(start - delay),
        "stop": to_ns(stop - delay),
        "worker": worker,
        "peer": entry["who"],
        "total_bytes": entry["total"],
        "compressed_bytes": entry.get("compressed"),
        "n_keys": len(entry["keys"]),
    }


class SpillTap:
    """Sees each write to and read from disk by Dask's own memory management.

    Parameters
    ----------
    worker : distributed.Worker
        The worker; one without Dask's own spill buffer has nothing to see.
    address : str
        Its address, for the rows.
    """

    def __init__(self, worker: Any, address: str) -> None:
        from distributed.spill import Slow, SpillBuffer

        self._rows: deque[dict[str, Any]] = deque()
        self._slow: Any = None
        buffer = worker.data
        if not isinstance(buffer, SpillBuffer):
            return
        slow = buffer._slow_uncached  # noqa: SLF001  the only way to the store on disk
        if not isinstance(slow, Slow):
            return
        rows = self._rows

        def note(action: str, key: Any, weight: Any, began: float) -> None:
            rows.append(
                {
                    "time": now_ns(),
                    "worker": address,
                    "key": wire_key(key),
                    "action": action,
                    "nbytes": getattr(weight, "memory", None),
                    "disk_bytes": getattr(weight, "disk", None),
                    "seconds": time.perf_counter() - began,
                }
            )

        if not hasattr(type(slow), "strata_notes"):
            try:
                slow.__class__ = _recorded(type(slow))
            except TypeError as error:
                logger.warning("dask-strata does not see spills on this version of Dask: %s", error)
                return
        self._slow, self._note = slow, note
        self._slow.strata_notes.append(note)

    def __call__(self) -> Iterable[Batch]:
        """Return what was seen since the last call."""
        rows = [self._rows.popleft() for _ in range(len(self._rows))]
        if rows:
            yield Batch.of_rows("spills", rows)

    def remove(self) -> None:
        """Stop; the last of several recordings to go gives the store its own class back."""
        slow, self._slow = self._slow, None
        if slow is None:
            return
        slow.strata_notes.remove(self._note)
        if not slow.strata_notes:
            slow.__class__ = slow.__class__.__base__


def _recorded(kind: type) -> type:
    """Return a class for one store, which tells all who want to know what goes in and out."""

    class Recorded(kind):
        strata_notes: ClassVar[list[Callable[[str, Any, Any, float], None]]] = []

        def __setitem__(self, key: Any, value: object) -> None:
            began = time.perf_counter()
            super().__setitem__(key, value)
            for note in self.strata_notes:
                note("spill", key, self.weight_by_key.get(key), began)

        def __getitem__(self, key: Any) -> object:
            began = time.perf_counter()
            value = super().__getitem__(key)
            for note in self.strata_notes:
                note("unspill", key, self.weight_by_key.get(key), began)
            return value

    return Recorded
