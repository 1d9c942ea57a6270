"""Tasks that were ready to run and got no CPU."""

from __future__ import annotations

from collections.abc import Iterator

from dask_strata.analysis.diagnosis.claims import Finding
from dask_strata.analysis.diagnosis.evidence import Evidence
from dask_strata.analysis.words import duration, number, percent

#: Least share of the time of tasks in which they waited for a CPU: threads of Dask take some.
_LEAST_DELAY = 0.25

#: Share of the CPUs that all recorded processes used, from which nobody else took them.
_FULL = 0.9

#: CPU time of libraries' threads as a share of that of tasks, from which they compete with them.
_LIBRARIES = 0.5

#: End of the text if it is not the run's own threads that took the CPUs.
BY_OTHERS = "while other processes of the host, or a limit of the container, took the CPUs"


def find(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding on the time in which tasks waited for a CPU.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    use = evidence.machine.cpu_use
    if use is None or not evidence.samples:
        return
    libraries = use.by_libraries >= _LIBRARIES * use.by_tasks
    if use.by_dask >= _FULL and not libraries:
        return  # tasks had the CPUs, and other tasks waited for them
    claims, whole = {}, 0.0
    prefixes: dict[str, float] = {}
    for index, seconds, runner in evidence.runner_seconds():
        share = evidence.samples.delay_share(runner)
        # More work of others cannot take more than what is left of the CPUs.
        claims[index] = seconds * (share if libraries else min(share, 1 - use.by_dask))
        whole += seconds * share
        prefixes[runner.prefix or ""] = prefixes.get(runner.prefix or "", 0.0) + claims[index]
    ran = sum(evidence.whole(claims).values())
    if not ran or whole < _LEAST_DELAY * ran:
        return
    prefix = max(prefixes, key=lambda name: prefixes[name])
    text = (
        f"too many threads for the CPUs: `{prefix}` waited for a CPU for "
        f"{percent(whole / ran)} of its time, "
    )
    text += "beside the threads that libraries start in each task" if libraries else BY_OTHERS
    yield Finding(
        "cpu-starvation",
        text,
        f"{number(use.cores)} cores; tasks used {percent(use.by_tasks)} of their time, threads "
        f"of libraries {percent(use.by_libraries)}, all processes of Dask "
        f"{percent(use.by_dask)}; tasks ran for {duration(ran)} of the critical path",
        "limit the threads of libraries to 1: threadpoolctl, NUMBA_NUM_THREADS, "
        "torch.set_num_threads, and OMP_NUM_THREADS=1 for workers without a nanny; or "
        "threads_per_worker=1"
        if libraries
        else "use as many threads as there are free cores (--nthreads, n_workers), and keep other "
        "processes off the host",
        "query RUN 'select prefix, sum(compute_seconds), sum(cpu_seconds), "
        "sum(process_cpu_seconds) from attempts group by all'",
        claims=claims,
    )
