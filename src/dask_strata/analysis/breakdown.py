"""The breakdown of thread-seconds: for each worker, its threads times its time connected.

Each instant of each thread counts once. Dask's startstops and the workers' transitions show
whether a thread runs the task's function (compute), unpacks the task's definition or collects its
dependencies within the worker (deserialize). A free thread counts as waiting if there is something
that it waits for, in this order: its worker writes results to disk or reads them (spill, one
thread); tasks on its worker wait for dependencies to arrive (transfer, one thread for each task);
its worker is paused; tasks wait for their turn to fetch, or for a resource (one thread each); its
worker's event loop is blocked while tasks are assigned to it (one thread each); its worker gave no
sign of life until it was removed. All other free threads are idle. Tasks of P2P shuffles wait for
transfers in their own functions: a barrier all the time, a sender by Dask's own measure.

If more tasks run than the worker has threads (asynchronous or seceded tasks), they share the
threads' time. Tasks that wait share the free threads in the same way. The shares are computed
for each attempt, so that the parts of the prefixes add up to the total too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dask_strata.analysis.series.thread_states import ThreadStates, thread_states

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Kinds of thread-seconds, and their meanings.
MEANINGS = {
    "compute": "in a task's function",
    "transfer": "free, while a task on the worker fetched its dependencies",
    "waiting to fetch": "free, while a task on the worker waited for its turn to fetch them",
    "deserialize": "unpacking a task's definition, or collecting its dependencies in the worker",
    "spill": "free or collecting dependencies, while the worker wrote results to disk or read them",
    "waiting for a resource": "free, while a task on the worker waited for a resource",
    "paused worker": "free, while Dask had paused the worker",
    "blocked event loop": "free, while the worker's event loop was blocked and had tasks to start",
    "silent worker": "not known to be busy, after the last sign of life of a worker that was removed "
    "because it sent no heartbeats",
    "other clients": "running tasks of other clients, whose tasks are not shown",
    "idle": "free, with nothing to wait for on the worker",
}

KINDS = tuple(MEANINGS)

#: Kinds that belong to no prefix. Spill belongs to the prefix of the result.
_WITHOUT_PREFIX = (
    "paused worker",
    "blocked event loop",
    "silent worker",
    "other clients",
    "idle",
)

PREFIX_KINDS = tuple(kind for kind in KINDS if kind not in _WITHOUT_PREFIX)

#: Kinds that views show even if they did not occur.
_ALWAYS_SHOWN = ("compute", "transfer", "deserialize", "spill", "idle")


@dataclass(frozen=True)
class Breakdown:
    """Thread-seconds of all workers.

    Attributes
    ----------
    total_seconds : float or None
        Threads times the time that their worker was connected; None if no execution is on record.
    seconds : dict
        Thread-seconds by kind, see `KINDS`; None for kinds that are not on record. The others add
        up to the total: idle time contains that of kinds that are not on record.
    prefixes : tuple of PrefixShare
        Thread-seconds by prefix, the largest first. With those of the kinds that belong to no
        prefix, they add up to the total.
    """

    total_seconds: float | None
    seconds: dict[str, float | None]
    prefixes: tuple[PrefixShare, ...] = ()

    @property
    def shown(self) -> tuple[str, ...]:
        """The kinds for a view: the usual ones, and others that occurred."""
        return tuple(kind for kind in KINDS if kind in _ALWAYS_SHOWN or self.seconds[kind])

    @property
    def unknown(self) -> tuple[str, ...]:
        """The usual kinds that are not on record."""
        return tuple(kind for kind in _ALWAYS_SHOWN if self.seconds[kind] is None)

    def share(self, kind: str) -> float:
        """Return a kind's share of the total, 0 to 1; 0 if either is 0 or not on record."""
        return (self.seconds[kind] or 0.0) / self.total_seconds if self.total_seconds else 0.0


@dataclass(frozen=True)
class PrefixShare:
    """Thread-seconds of one prefix by kind, see `PREFIX_KINDS`; None for kinds not on record."""

    prefix: str
    seconds: dict[str, float | None]

    @property
    def total_seconds(self) -> float:
        """Thread-seconds of all kinds."""
        return sum(seconds or 0.0 for seconds in self.seconds.values())


@dataclass(frozen=True)
class PrefixUse:
    """Tasks and attempts of one prefix, their times in seconds and the size of their results.

    Median, 95th percentile and maximum are those of the attempts' time in the task's function;
    median and percentile are of functions that ended. Times, the size and the number of failed
    tasks are None if they are on record for no task.
    """

    prefix: str
    n_tasks: int
    n_attempts: int
    n_erred: int | None
    compute_seconds: float | None
    transfer_seconds: float | None
    median_seconds: float | None
    p95_seconds: float | None
    max_seconds: float | None
    nbytes: int | None
    n_retried: int


def breakdown(run: Run, states: ThreadStates | None = None) -> Breakdown:
    """Return the thread-seconds of a run, by kind and by prefix.

    Parameters
    ----------
    run : Run
        The run.
    states : ThreadStates, optional
        The states of its threads, if they are already computed.

    Returns
    -------
    Breakdown
        Without seconds for an imported run that has no execution.
    """
    states = thread_states(run) if states is None else states
    total = states.total / 1e9
    known = _known_kinds(run)
    if "compute" not in known:
        return Breakdown(None, dict.fromkeys(KINDS))
    seconds = dict.fromkeys(KINDS, 0.0)
    by_prefix: dict[str, dict[str, float]] = {}
    for kind, amount in states.kinds.items():
        seconds[kind] += amount / 1e9
    for (prefix, interval), amount in states.prefixes.items():
        kind = "deserialize" if interval == "disk" else interval
        seconds[kind] += amount / 1e9
        of_prefix = by_prefix.setdefault(prefix, dict.fromkeys(PREFIX_KINDS, 0.0))
        of_prefix[kind] += amount / 1e9
    for wait in run.rows("select * from _shuffle_waits"):
        of_prefix = by_prefix.get(wait["prefix"], {})
        waited = min(wait["seconds"], of_prefix.get("compute", 0.0))
        for changed in (seconds, of_prefix) if waited else ():
            changed["compute"] -= waited
            changed["transfer"] += waited
    seconds["idle"] = max(0.0, total - sum(seconds.values()))
    shares = sorted(
        (PrefixShare(prefix, _only(known, part)) for prefix, part in by_prefix.items()),
        key=lambda share: (-share.total_seconds, share.prefix),
    )
    return Breakdown(total, _only(known, seconds), tuple(shares))


def _only(known: frozenset[str], seconds: dict[str, float]) -> dict[str, float | None]:
    return {kind: part if kind in known else None for kind, part in seconds.items()}


def _known_kinds(run: Run) -> frozenset[str]:
    """Return the kinds that are on record: for a kind without rows, 0 is then its amount.

    Recorded workers have rows of everything that happens on them. Of other workers only the
    scheduler's rows are known, or the rows of the imported files.
    """
    [row] = run.rows("""
        select count(*) as n, count(compute_seconds) as compute, count(transfer_seconds) as transfer,
               count(deserialize_seconds) as deserialize, count(disk_seconds) as spill,
               exists (from processes where role = 'worker') as recorded
        from attempts
    """)
    if run.record.imported:
        return frozenset(kind for kind in ("compute", "transfer") if row[kind]) | {"idle"}
    if row["recorded"] or not row["n"]:
        return frozenset(KINDS)
    of_attempts = ("compute", "transfer", "deserialize", "spill")
    return frozenset(kind for kind in of_attempts if row[kind]) | {"paused worker", "idle"}


def prefixes(run: Run) -> tuple[PrefixUse, ...]:
    """Return the tasks, times and sizes of each prefix, the longest compute time first.

    Parameters
    ----------
    run : Run
        The run.
    """
    rows = run.rows("""
        with t as (
            select coalesce(prefix, '(unknown)') as prefix, count(*) as n_tasks,
                   sum(n_attempts)::bigint as n_attempts,
                   case when count(state) > 0 then count(*) filter (state = 'erred') end as n_erred,
                   sum(nbytes)::bigint as nbytes
            from tasks where not finished_before group by 1
        ), a as (
            select coalesce(prefix, '(unknown)') as prefix,
                   sum(compute_seconds) as compute_seconds,
                   sum(transfer_seconds) as transfer_seconds,
                   median(compute_seconds) filter (ended) as median_seconds,
                   max(compute_seconds) as max_seconds,
                   quantile_cont(compute_seconds, 0.95) filter (ended) as p95_seconds,
                   count(*) filter (outcome = 'retried') as n_retried
            from (select prefix, outcome, compute_seconds, transfer_seconds,
                         outcome not in ('running', 'lost', 'released') as ended from attempts)
            group by 1
        )
        select t.*, a.compute_seconds, a.transfer_seconds, a.median_seconds, a.p95_seconds,
               a.max_seconds, coalesce(a.n_retried, 0) as n_retried
        from t left join a on a.prefix = t.prefix
        order by compute_seconds desc nulls last, n_tasks desc, prefix
    """)
    return tuple(PrefixUse(**row) for row in rows)
