"""Workers, their hosts, and how their CPUs, clocks and memory were used."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Least number of threads that can compete.
_SEVERAL = 2


#: CPU time of all processes on the workers' hosts within two moments, by their samples.
_PROCESSES_CPU = """
    with steps as (
        select s.process, epoch_ns(s.time) as b,
               lag(epoch_ns(s.time)) over (partition by s.process order by s.time) as a,
               s.cpu_seconds - lag(s.cpu_seconds) over (partition by s.process order by s.time)
                   as used
        from process_samples s join processes p on p.process = s.process
        where p.host in (select host from workers) and s.cpu_seconds is not null
    )
    select sum(used * (least(b, $2) - greatest(a, $1)) / (b - a)) as seconds
    from steps where b > a and b > $1 and a < $2 and used > 0
"""


class CpuUse(NamedTuple):
    """Use of the CPUs of the workers' hosts, as shares of their time within the makespan.

    Attributes
    ----------
    cores : float
        CPUs of all these hosts.
    by_tasks : float
        Share that the threads of tasks used.
    by_libraries : float
        Share that other threads of the workers' processes used, as far as it is of tasks.
    by_dask : float
        Share that all recorded processes used, with tasks and libraries.
    """

    cores: float
    by_tasks: float
    by_libraries: float
    by_dask: float


class MachineFacts:
    """Facts of the workers of a run.

    Parameters
    ----------
    run : Run
        The run.
    window : tuple of int
        First and last moment of its makespan, in ns since the epoch.
    """

    def __init__(self, run: Run, window: tuple[int, int]) -> None:
        self.run, self._window = run, window

    @cached_property
    def workers(self) -> dict[str, dict[str, Any]]:
        """Name, host and process of each worker, by its address."""
        rows = self.run.rows(
            "select worker, any_value(name) as name, any_value(host) as host, "
            "any_value(process) as process, max(nthreads) as nthreads from workers group by "
            "worker"
        )
        return {row["worker"]: row for row in rows}

    @property
    def n_hosts(self) -> int:
        """Number of hosts of workers."""
        return len({row["host"] for row in self.workers.values() if row["host"]})

    @cached_property
    def cores(self) -> dict[str, float]:
        """Number of CPUs that processes may use, by host."""
        rows = self.run.rows("""
            select p.host,
                   min(try_cast(j.value as double)) filter (j.name = 'cpu.allowed') as allowed,
                   min(try_cast(j.value as double)) filter (j.name = 'cgroup.cpu-limit') as quota
            from job j join processes p on p.process = j.process
            where p.host is not null group by p.host
        """)
        found = {}
        for row in rows:
            limits = [n for n in (row["allowed"], row["quota"]) if n]
            if limits:
                found[row["host"]] = min(limits)
        return found

    def gain_of_processes(self, worker: str | None, cpu_share: float) -> float:
        """Return the share of waits for the GIL that more processes would save, 0 to 1.

        Of n threads of a worker one runs Python code at a time. With a process for each thread, as
        many run as there are CPUs.

        Parameters
        ----------
        worker : str or None
            Address of the worker.
        cpu_share : float
            CPU time of a thread that has the GIL, as a share of this time.
        """
        here = self.workers.get(worker or "")
        if here is None or not here["nthreads"] or here["nthreads"] < _SEVERAL:
            return 0.0
        on_host = [w for w in self.workers.values() if w["host"] == here["host"]]
        n_workers, n_threads = len(on_host), sum(w["nthreads"] or 1 for w in on_host)
        cores = self.cores.get(here["host"], float(n_threads))
        possible = min(float(n_threads), cores / max(cpu_share, 0.01))
        saved = 1 - min(n_workers / possible, 1.0)
        waited = 1 - n_workers / n_threads
        return min(saved / waited, 1.0) if waited > 0 else 0.0

    @cached_property
    def clock_offset_seconds(self) -> dict[str, float]:
        """Offset of each process's clock to that of the scheduler, in seconds."""
        return {process: ns / 1e9 for process, ns in self.run.clock_offsets_ns.items()}

    @cached_property
    def cpu_use(self) -> CpuUse | None:
        """How CPUs were used within the makespan; None if cores or CPU times are not on record."""
        hosts = {row["host"] for row in self.workers.values()}
        known = [n for host in hosts if (n := self.cores.get(host or ""))]
        if not known or len(known) < len(hosts):
            return None
        row = self.run.rows(
            "select sum(cpu_seconds) as tasks, sum(other_cpu_seconds) as libraries from attempts"
        )[0]
        first, last = self._window
        if row["tasks"] is None or last <= first:
            return None
        available = sum(known) * (last - first) / 1e9
        libraries = row["libraries"] or 0.0
        whole = self.run.rows(_PROCESSES_CPU, first, last)[0]["seconds"]
        whole = max(whole or 0.0, row["tasks"] + libraries)
        return CpuUse(
            sum(known), row["tasks"] / available, libraries / available, whole / available
        )

    def prefix_that_grew(self, process: str) -> str | None:
        """Return the prefix in whose executions a process's memory grew most."""
        rows = self.run.rows(
            """
            select coalesce(a.prefix, '(unknown)') as prefix,
                   sum(a.rss_after_bytes - a.rss_before_bytes - coalesce(a.nbytes, 0)) as grew
            from attempts a join workers w on w.worker = a.worker
            where w.process = $1 and a.rss_after_bytes is not null
            group by 1 order by grew desc, 1 limit 1
            """,
            process,
        )
        return rows[0]["prefix"] if rows and (rows[0]["grew"] or 0) > 0 else None
