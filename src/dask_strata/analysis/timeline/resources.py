"""Resources of a run over time: of each worker, of all together, and of the scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_strata.analysis.series.columns import Array, Names, arrays
from dask_strata.analysis.timeline.bins import Bins, Floats, Means, Peaks

if TYPE_CHECKING:
    from dask_strata.analysis.timeline.timeline import Timeline
    from dask_strata.run import Run

#: Bins of a whole run, and most workers that have lines of their own.
BINS, WORKERS = 400, 50

#: A sample of a state counts until the next one, but at most for so many usual intervals.
_HOLD = 5

#: Usual interval of samples in ns, where no worker has two.
_USUAL_GAP = 1_000_000_000

#: Longest usual interval, and latest time, in ns: damaged records have any.
_LONGEST, _LAST = 3600 * 10**9, 2**63 - 2**60

#: Limits of a worker's memory, and its threads: constant while it is connected.
CONSTANTS = ("target", "spill", "pause", "limit", "threads")

#: Names of series, in order, and their units.
SERIES = {
    "cpu": "cores",
    "task_cpu": "cores",
    "rss": "bytes",
    "managed": "bytes",
    "spilled": "bytes",
    "target": "bytes",
    "spill": "bytes",
    "pause": "bytes",
    "limit": "bytes",
    "read": "bytes per second",
    "written": "bytes per second",
    "storage_read": "bytes per second",
    "storage_written": "bytes per second",
    "received": "bytes per second",
    "sent": "bytes per second",
    "lag": "seconds",
    "busy": "threads",
    "threads": "threads",
    "processing": "tasks",
}

_CONNECTED = """
    select worker, min(name) as name, min(host) as host, max(nthreads)::double as threads,
           list(struct_pack(a := coalesce(epoch_ns(start), $1), b := coalesce(epoch_ns(stop), $2)))
               as times
    from workers where worker is not null group by worker order by worker
"""

_LIMITS = """
    select worker, arg_max(target_bytes, time) as target, arg_max(spill_bytes, time) as spill,
           arg_max(pause_bytes, time) as pause, arg_max(limit_bytes, time) as limit
    from memory_limits group by worker
"""

_USUAL = """
    with gaps as (
        select epoch_ns(lead(time) over (partition by process, worker, seen_by order by time))
               ::double - epoch_ns(time) as gap from worker_samples
    ) select median(gap) as gap from gaps where gap > 0
"""

# States at samples: each counts until the next sample. Delays of the event loop are of the time
# before the sample.
_SAMPLES = """
    with samples as (
        select worker, seen_by, epoch_ns(time) as a, rss_bytes, managed_bytes, unmanaged_bytes,
               spilled_bytes, executing, processing, loop_lag_seconds, net_read_bytes_per_second,
               net_write_bytes_per_second,
               epoch_ns(lag(time) over w) as before, epoch_ns(lead(time) over w) as next
        from worker_samples where epoch_ns(time) between $3 and $4
        window w as (partition by process, worker, seen_by order by time)
    )
    select worker, seen_by = 'worker' as own, a,
           least(coalesce(next, a + $1), a + $1) as b,
           greatest(coalesce(before, a - $1 // $2), a - $1) as before,
           coalesce(rss_bytes::double, managed_bytes::double + unmanaged_bytes) as rss,
           managed_bytes::double as managed, spilled_bytes::double as spilled,
           executing::double as executing, processing::double as processing,
           loop_lag_seconds::double as lag, net_read_bytes_per_second::double as received,
           net_write_bytes_per_second::double as sent
    from samples
"""

# Use of processes between two samples. Several servers may share a process and its counters:
# the first of them counts for all workers together.
_USED = """
    with servers as (
        select process, case when role = 'scheduler' then '' else address end as worker,
               row_number() over (partition by host, pid, role order by process) = 1 as first
        from processes where role in ('worker', 'scheduler')
    )
    select worker, first, epoch_ns(time) as b, coalesce(epoch_ns(lag(time) over w), 0) as a,
           cpu_seconds::double - lag(cpu_seconds) over w as cpu,
           read_bytes::double - lag(read_bytes) over w as read,
           write_bytes::double - lag(write_bytes) over w as written,
           storage_read_bytes::double - lag(storage_read_bytes) over w as storage_read,
           storage_write_bytes::double - lag(storage_write_bytes) over w as storage_written
    from process_samples join servers using (process)
    window w as (partition by process order by time)
"""

_EXECUTED = """
    select worker, epoch_ns(start) as a, coalesce(epoch_ns(stop), $1) as b,
           cpu_seconds::double as cpu
    from executions where start is not null
"""

_BLOCKS = """
    select coalesce(worker, '') as worker, start_ns as a, stop_ns as b,
           (stop_ns::double - start_ns) / 1e9 as lag from _loop_blocks
"""

_SCHEDULER = """
    select epoch_ns(time) as a, rss_bytes::double as rss, loop_lag_seconds::double as lag,
           (coalesce(epoch_ns(lead(time) over (order by time)), epoch_ns(time) + $1))::bigint
               as next,
           (coalesce(epoch_ns(lag(time) over (order by time)), epoch_ns(time) - $1 // $2))::bigint
               as before
    from scheduler_samples where epoch_ns(time) between $3 and $4
"""


@dataclass(frozen=True)
class Resources:
    """Resources in even bins from the first moment of the timeline on.

    Attributes
    ----------
    step : int
        Length of a bin in ns.
    names : tuple of (str, str)
        Address and name of each worker with lines of its own. Row 0 of a series is of all
        workers together, the next ones are of these workers, the last one is the scheduler's.
    values : dict of str to array
        By the names in `SERIES`; not a number where a value is unknown. A series without any
        value is absent.
    n_left_out : int
        Workers that count in row 0 only.

    Notes
    -----
    CPU, bytes per second, threads and tasks are means over the known time of a bin; memory of a
    worker and delays of event loops are the largest value in it. Row 0 has the sum of the
    workers' means, and the largest delay.
    """

    step: int
    names: tuple[tuple[str, str], ...]
    values: dict[str, Floats]
    n_left_out: int


def resources(run: Run, drawn: Timeline) -> Resources:
    """Return the resources of a run over time.

    Parameters
    ----------
    run : Run
        The run.
    drawn : Timeline
        Its timeline.
    """
    found = _Found(run, drawn)
    with np.errstate(all="ignore"):  # damaged records have any numbers
        found.add_connections()
        found.add_samples()
        found.add_used()
        found.add_tasks()
        return found.result()


class _Found:
    """Series of all workers and, in the row after them, the scheduler."""

    def __init__(self, run: Run, drawn: Timeline) -> None:
        self.run, self.drawn = run, drawn
        self.end = drawn.origin + drawn.span
        self.bins = Bins(drawn.origin, max(drawn.span, 1), BINS)
        self.workers = run.rows(_CONNECTED, drawn.origin, self.end)
        self.n = len(self.workers)
        self.at = {row["worker"]: i for i, row in enumerate(self.workers)} | {"": self.n}
        self.values: dict[str, Floats] = {}
        self.total: dict[str, Floats] = {}
        usual = run.rows(_USUAL)[0]["gap"] or _USUAL_GAP
        self.hold = int(min(max(usual, 1), _LONGEST)) * _HOLD
        self.within = (drawn.origin - self.hold, min(self.end, _LAST))

    def means(self) -> Means:
        """Return empty means of all rows."""
        return Means(self.n + 1, self.bins)

    def parts(self, query: str, *parameters: Any) -> Any:
        """Yield the rows of a query in parts, with the row of their worker as ``subject``."""
        names = Names()
        for batch in self.run.batches(query, *parameters):
            part = arrays(batch, {"worker": names})
            rows = np.array([*(self.at.get(name, -1) for name in names.names), -1], np.int64)
            yield part | {"subject": rows[part["worker"]]}

    def add_connections(self) -> None:
        """Add the limits and threads of workers, and the bins in which each is connected."""
        connected, constants = self.means(), {name: self.means() for name in CONSTANTS}
        limits = {row["worker"]: row for row in self.run.rows(_LIMITS)}
        for i, row in enumerate(self.workers):
            times = row["times"]
            a, b = (np.array([time[name] for time in times], np.int64) for name in "ab")
            subject = np.full(len(times), i)
            connected.add(subject, a, b, np.zeros(len(times)))
            facts: dict[str, Any] = {**limits.get(row["worker"], {}), "threads": row["threads"]}
            for name in CONSTANTS:
                value = np.nan if facts.get(name) is None else float(facts[name])
                constants[name].add(subject, a, b, value * (b - a) / 1e9)
        for name in CONSTANTS:
            self.values[name] = constants[name].means()
            # Where a worker leaves and another one joins, a bin has a part of each.
            part = np.where(constants[name].covered() > 0, constants[name].amounts(), np.nan)
            self.total[name] = _sum(part[:-1]) / (self.bins.step / 1e9)
        self.connected = connected.covered() > 0

    def add_samples(self) -> None:
        """Add memory, network, event loops and tasks, as sampled."""
        gauges = ("rss", "managed", "spilled", "executing", "received", "sent")
        own, seen = ({name: self.means() for name in gauges} for _ in range(2))
        processing = self.means()
        peaks = {name: Peaks(self.n + 1, self.bins) for name in ("rss", "managed", "spilled")}
        theirs = {name: Peaks(self.n + 1, self.bins) for name in peaks}
        lag = Peaks(self.n + 1, self.bins)
        for part in self.parts(_SAMPLES, self.hold, _HOLD, *self.within):
            by_worker = part["own"].astype(bool)
            of, a, b = part["subject"], part["a"], part["b"]
            seconds = (b - a) / 1e9
            for chosen, means, highest in ((by_worker, own, peaks), (~by_worker, seen, theirs)):
                subject = np.where(chosen, of, -1)
                for name in gauges:
                    means[name].add(subject, a, b, part[name] * seconds)
                for name in highest:
                    highest[name].add(subject, a, b, part[name])
            processing.add(np.where(by_worker, -1, of), a, b, part["processing"] * seconds)
            lag.add(np.where(by_worker, of, -1), part["before"], a, part["lag"])
        scheduler = self._scheduler(lag)
        for part in self.parts(_BLOCKS):
            lag.add(part["subject"], part["a"], part["b"], part["lag"])
        for name in gauges:
            mean = _first(own[name].means(), seen[name].means())
            if name in peaks:
                self.total[name] = _sum(self._while_connected(mean)[:-1])
                mean = _first(peaks[name].values(), theirs[name].values())
            self.values[name] = self._while_connected(mean)
        self.values["rss"][-1] = scheduler
        for name in ("received", "sent"):  # of the host, which several workers may share
            self.total[name] = self._by_host(self.values[name][:-1])
        self.values["processing"] = self._while_connected(processing.means())
        self.values["lag"] = lag.values()
        self.total["lag"] = _quiet(np.fmax.reduce, self.values["lag"][:-1], self.bins.n)

    def _while_connected(self, values: Floats) -> Floats:
        """Return values that do not outlast the connection of a worker."""
        return np.where(self.connected, values, np.nan)

    def _scheduler(self, lag: Peaks) -> Floats:
        """Add the scheduler's delays, and return its memory."""
        memory = Peaks(1, self.bins)
        for batch in self.run.batches(_SCHEDULER, self.hold, _HOLD, *self.within):
            part = arrays(batch)
            one = np.zeros(len(part["a"]), np.int64)
            a = part["a"]
            memory.add(one, a, np.minimum(part["next"], a + self.hold), part["rss"])
            lag.add(one + self.n, np.maximum(part["before"], a - self.hold), a, part["lag"])
        found: Floats = memory.values()[0]
        return found

    def _by_host(self, values: Floats) -> Floats:
        """Return the sum over hosts, each the mean of its workers' measurements."""
        hosts: dict[Any, list[int]] = {}
        for i, row in enumerate(self.workers):
            hosts.setdefault(row["host"] or i, []).append(i)
        each = [_quiet(_mean, values[rows], self.bins.n) for rows in hosts.values()]
        return _sum(np.array(each).reshape(-1, self.bins.n))

    def add_used(self) -> None:
        """Add CPU and files of processes, and the CPU of tasks."""
        names = ("cpu", "read", "written", "storage_read", "storage_written")
        means = {name: (self.means(), self.means()) for name in names}
        for part in self.parts(_USED):
            first = np.where(part["first"].astype(bool), part["subject"], -1)
            for name, (each, once) in means.items():
                amount = np.where(part[name] >= 0, part[name], np.nan)
                each.add(part["subject"], part["a"], part["b"], amount)
                once.add(first, part["a"], part["b"], amount)
        for name, (each, once) in means.items():
            self.values[name] = each.means()
            self.total[name] = _sum(once.means()[:-1])
        known, unknown, some = self.means(), self.means(), np.zeros(self.n + 1, bool)
        for part in self.parts(_EXECUTED, self.end):
            missing = np.isnan(part["cpu"])
            known.add(part["subject"], part["a"], part["b"], part["cpu"])
            unknown.add(part["subject"], part["a"], part["b"], np.where(missing, 0, np.nan))
            some[part["subject"][(part["subject"] >= 0) & ~missing]] = True
        # A process whose executions are on record used no CPU for tasks at other times.
        sure = ~np.isnan(self.values["cpu"]) & (unknown.covered() == 0) & some[:, None]
        sure |= (known.covered() > 0) & (unknown.covered() == 0)
        self.values["task_cpu"] = np.where(sure, known.amounts() / self.bins.step * 1e9, np.nan)

    def add_tasks(self) -> None:
        """Add threads that computed, of attempts."""
        bars, rows = self.drawn.bars, self.drawn.rows
        of = np.array([*(self.at.get(row.worker, -1) for row in rows), -1], np.int64)[bars.row]
        a, b = bars.start + self.bins.origin, bars.stop + self.bins.origin
        ran, pale = self.means(), self.means()
        ran.add(np.where(bars.ran == 1, of, -1), a, b, (b - a) / 1e9)
        pale.add(np.where(bars.ran == 1, -1, of), a, b, (b - a) / 1e9)
        there = self.connected | (ran.covered() > 0)
        sure = there & (pale.covered() == 0)
        busy = np.where(sure, ran.amounts() / (self.bins.step / 1e9), np.nan)
        # Of attempts without an execution, only samples show whether they were executing.
        self.values["busy"] = _first(busy, self.values.pop("executing"))
        self.values["busy"][-1] = np.nan

    def result(self) -> Resources:
        """Return the series of the workers with lines of their own."""
        peak = np.nan_to_num(self.values["rss"][:-1], nan=0).max(axis=1, initial=0)
        kept = sorted(np.argsort(-peak, kind="stable")[:WORKERS].tolist())
        values = {}
        for name in SERIES:
            rows = self.values[name]
            total = self.total.get(name)
            total = _sum(rows[:-1]) if total is None else total
            found = np.vstack([total, rows[kept], rows[-1:]])
            if not np.isnan(found).all():
                values[name] = found
        names = tuple((self.workers[i]["worker"], self.workers[i]["name"] or "") for i in kept)
        return Resources(self.bins.step, names, values, self.n - len(kept))


def _first(*choices: Floats) -> Floats:
    """Return the first known value of each place."""
    found = choices[0].copy()
    for choice in choices[1:]:
        found = np.where(np.isnan(found), choice, found)
    return found


def _sum(rows: Floats) -> Floats:
    """Return the sums of known values by column; not a number where none is known."""
    return np.where(np.isnan(rows).all(axis=0), np.nan, np.nansum(rows, axis=0))


def _mean(rows: Floats) -> Floats:
    known = ~np.isnan(rows)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = np.nansum(rows, axis=0) / known.sum(axis=0)
    return found


def _quiet(function: Any, rows: Array, n: int) -> Floats:
    """Return a function of the rows; not a number without rows."""
    return np.asarray(function(rows)) if len(rows) else np.full(n, np.nan)
