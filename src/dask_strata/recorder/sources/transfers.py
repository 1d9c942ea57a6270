"""Transfers of results between workers, which both ends log, and P2P shuffles."""

from __future__ import annotations

import contextlib
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any

from dask_strata.recorder.pipeline.engine import Engine, now_ns, to_ns
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.sources.dask_logs import LogFollower
from dask_strata.schema import wire_key
from dask_strata.store.segments.frames import Batch


class TransferSource(Source):
    """Make batches of ``transfer_ends`` and ``transfer_end_keys``, and rows of ``clock_offsets``.

    Parameters
    ----------
    worker : distributed.Worker
        The worker.
    incoming, outgoing : LogFollower
        Followers of the worker's two logs of transfers.
    engine : Engine
        Gets the rows of ``clock_offsets``.
    """

    def __init__(
        self, worker: Any, incoming: LogFollower, outgoing: LogFollower, engine: Engine
    ) -> None:
        self._worker, self._address = worker, worker.address
        self._incoming, self._outgoing = incoming, outgoing
        self._engine = engine
        self._n_transfers = 0
        self._delay: float | None = None

    def rows(self) -> Iterable[Batch]:
        """Return rows of the transfers that ended since the last call."""
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
        for end, log in (("incoming", self._incoming), ("outgoing", self._outgoing)):
            for entry in log.take():
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


def _transfer_row(end: str, entry: dict[str, Any], worker: str, delay: float) -> dict[str, Any]:
    """Return the row for an entry of Dask's transfer logs, with times on the worker's own clock.

    Dask shifts start and stop to the scheduler's clock. An outgoing entry also has the unshifted
    `middle`, which gives the exact shift. For an incoming entry, assume the present delay.
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


class ShuffleSource(Source):
    """Make batches of ``shuffle_samples``: Dask's own counters of P2P shuffles on a worker.

    Shards bypass Dask's logs of transfers. Each shuffle counts bytes for Dask's heartbeat, and
    meters shards and seconds. Dask adds these up for the whole worker; this source also keeps
    them by shuffle. On the event loop that costs one append per metered value, which is a few for
    each message.

    Create and remove it on the worker's event loop.

    Parameters
    ----------
    worker : distributed.Worker
        The worker.
    engine : Engine
        Gets a row of ``losses`` if this version of Dask keeps its shuffles in another form.
    """

    def __init__(self, worker: Any, engine: Engine) -> None:
        self._worker, self._address, self._engine = worker, worker.address, engine
        self._plugin: Any = None
        self._manager: Any = None
        self._runs: _FollowedRuns | None = None
        self._active: dict[int, _FollowedShuffle] = {}
        self._ended: deque[_FollowedShuffle] = deque()
        self._due = False
        self._follow()

    def _follow(self) -> None:
        """Follow the shuffles of the worker's plugin, which may arrive after this recorder."""
        plugin = self._worker.extensions.get("shuffle")
        if plugin is self._plugin or self._engine.finished:
            return
        self.remove()
        self._plugin = plugin
        if plugin is None:
            return
        manager = getattr(plugin, "shuffle_runs", None)
        runs = getattr(manager, "_runs", None)
        if manager is not None and type(runs) is set:
            runs = manager._runs = _FollowedRuns(runs)  # noqa: SLF001  Dask has no public attribute
        if not isinstance(runs, _FollowedRuns):
            self._engine.add(
                "losses",
                time=now_ns(),
                what="shuffle_samples",
                reason="this version of Dask does not keep its P2P shuffles in a set",
                where=self._engine.process,
            )
            return
        self._manager, self._runs = manager, runs
        runs.followers.append(self)
        for run in list(runs):
            self._begin(run, whole=False)

    def began(self, run: Any) -> None:
        """Follow a shuffle; called on the event loop before it has counted anything."""
        self._begin(run, whole=True)

    def _begin(self, run: Any, *, whole: bool) -> None:
        def follow() -> None:
            self._active[id(run)] = _FollowedShuffle(run, whole=whole)

        self._engine.call(follow, "start of a P2P shuffle")

    def ended(self, run: Any) -> None:
        """Keep the last counters of a closed shuffle; called on the event loop."""
        shuffle = self._active.pop(id(run), None)
        if shuffle is not None:
            self._engine.call(shuffle.end, "end of a P2P shuffle")
            self._ended.append(shuffle)

    def sample(self) -> None:
        """Make the next `rows` contain the shuffles that have counted something since."""
        self._due = True
        if self._worker.extensions.get("shuffle") is not self._plugin:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._worker.loop.add_callback(self._follow)

    def rows(self) -> Iterable[Batch]:
        """Return rows of the shuffles that ended, and at each sample of those that go on."""
        found = [self._ended.popleft() for _ in range(len(self._ended))]
        active, due = list(self._active.values()), self._due
        for shuffle in active:
            self._engine.call(shuffle.add_up, "meter of a P2P shuffle")
        if due:
            self._due = False
            found += active
        rows: list[dict[str, Any]] = []
        for shuffle in found:
            # One by one, as an error costs the rows of its own shuffle only.
            self._engine.call(partial(shuffle.add_row, rows, self._address), "P2P shuffle")
        if rows:
            yield Batch.of_rows("shuffle_samples", rows)

    def finish(self) -> None:
        """Make the last `rows` contain all shuffles that have not ended."""
        self._due = True

    def remove(self) -> None:
        """Stop following; restore Dask's objects unless another recorder follows them."""
        runs, self._runs = self._runs, None
        if runs is None:
            return
        runs.followers.remove(self)
        for shuffle in self._active.values():
            self._engine.call(shuffle.stop, "last of a P2P shuffle")
        manager = self._manager
        if not runs.followers and manager._runs is runs:  # noqa: SLF001  as in `_follow`
            manager._runs = set(runs)  # noqa: SLF001  as in `_follow`


class _FollowedRuns(set[Any]):
    """The shuffles of a worker; calls its followers, which never raise, when one begins or ends."""

    def __init__(self, runs: Iterable[Any]) -> None:
        super().__init__(runs)
        self.followers: list[ShuffleSource] = []

    def add(self, run: Any) -> None:
        super().add(run)
        for follower in self.followers:
            follower.began(run)

    def remove(self, run: Any) -> None:
        super().remove(run)
        for follower in self.followers:
            follower.ended(run)


class _Metered:
    """Stands for a shuffle's `digest_metric`: notes each metered value, and passes it on."""

    def __init__(self, digest: Callable[[Hashable, float], None]) -> None:
        self.digest = digest
        self.notes: list[deque[tuple[Any, float]]] = []

    def __call__(self, name: Hashable, value: float) -> None:
        for notes in self.notes:
            notes.append((name, value))
        self.digest(name, value)


class _FollowedShuffle:
    """A shuffle on a worker, and the sums of its metered values.

    Parameters
    ----------
    run : distributed.shuffle._core.ShuffleRun
        The shuffle.
    whole : bool
        Whether it begins now. The metered values of an earlier shuffle are not all known.
    """

    def __init__(self, run: Any, *, whole: bool) -> None:
        #: None after the shuffle has ended; `_last` is set before.
        self._run: Any = run
        self._last: dict[str, Any] = {}
        self._written: dict[str, Any] = {}
        self._notes: deque[tuple[Any, float]] = deque()
        self._sums: defaultdict[tuple[str, ...], float] = defaultdict(float)
        self._counts: defaultdict[tuple[str, ...], int] = defaultdict(int)
        self._facts = {
            "shuffle": str(run.id),
            "run_id": run.run_id,
            "kind": type(run).__name__.removesuffix("Run"),
            "start": to_ns(run.start_time),
            "on_disk": hasattr(run._disk_buffer, "directory"),  # noqa: SLF001  as in `_follow`
        }
        self._metered: _Metered | None = None
        if whole:
            if not isinstance(run.digest_metric, _Metered):
                run.digest_metric = _Metered(run.digest_metric)
            self._metered = run.digest_metric
            self._metered.notes = [*self._metered.notes, self._notes]

    def stop(self) -> None:
        """Restore the shuffle's own meter, unless another recorder uses it."""
        metered, run = self._metered, self._run
        if metered is None or run is None:
            return
        metered.notes = [notes for notes in metered.notes if notes is not self._notes]
        if not metered.notes and run.digest_metric is metered:
            run.digest_metric = metered.digest

    def end(self) -> None:
        """Keep the last counters, and let go of the shuffle."""
        run = self._run
        self._last = {"time": now_ns(), "ended": True}
        try:
            self._last |= _heartbeat(run)
        finally:
            try:
                self.stop()
            finally:
                self._run = None

    def add_up(self) -> None:
        """Add up the metered values so far."""
        for _ in range(len(self._notes)):
            # ("p2p", span, foreground or background-…, label, …, unit)
            (_, _, *name), value = self._notes.popleft()
            self._sums[tuple(name)] += value
            self._counts[tuple(name)] += 1

    def add_row(self, rows: list[dict[str, Any]], worker: str) -> None:
        """Append a row of ``shuffle_samples``, unless nothing has changed since the last."""
        run = self._run
        counted = self._last if run is None else {**_heartbeat(run), "ended": False}
        self.add_up()
        row = {**self._facts, **counted, **self._metered_columns()}
        if row != self._written:
            self._written = row
            rows.append({"time": now_ns(), "worker": worker, **row})

    def _metered_columns(self) -> dict[str, Any]:
        """Return the columns that Dask meters; {} for a shuffle that began before."""
        if self._metered is None:
            return {}
        sums, counts = self._sums, self._counts
        return {
            "partitions_in": counts["foreground", "shard-partition-cpu", "seconds"],
            "shards": int(sums["foreground", "shards", "count"]),
            "shard_bytes": int(sums["foreground", "shards", "bytes"]),
            "shard_seconds": self._seconds("foreground", "shard-partition"),
            "wait_seconds": self._seconds("foreground", "comms-limiter"),
            "messages": int(sums["background-comms", "process", "count"]),
            "send_seconds": self._seconds("background-comms"),
            "store_seconds": self._seconds("background-disk"),
            "partitions_out": counts["foreground", "get-output-cpu", "seconds"],
            "assemble_seconds": self._seconds("foreground", "get-output"),
        }

    def _seconds(self, where: str, label: str = "") -> float:
        """Return the sum of the times with labels that begin like this, without idle time."""
        return sum(
            value
            for name, value in self._sums.items()
            if name[0] == where
            and name[-1] == "seconds"
            and name[1].startswith(label)
            and name[1] != "idle"
        )


def _heartbeat(run: Any) -> dict[str, Any]:
    """Return the columns that a shuffle counts for Dask's heartbeat."""
    counted = run.heartbeat()
    sent, stored = counted["comm"], counted["disk"]
    return {
        "transferred": run.transferred,
        "sent_bytes": sent["written"],
        "received_bytes": sent["read"],
        "stored_bytes": stored["written"],
        "assembled_bytes": stored["read"],
    }
