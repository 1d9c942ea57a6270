"""What to do about the unexpected end of a worker."""

from __future__ import annotations

from typing import Any

from dask_strata.analysis.why.acts import FAULTS

_MEMORY = (
    "give workers more memory (memory_limit=…), fewer threads, or smaller chunks for this task"
)
_OOM = (
    "set memory_limit below what the control group or host has for each worker, so that Dask "
    "spills, pauses and restarts in time; or request more memory, or fewer threads"
)
_OF_JOBS = {
    "TIMEOUT": "request more time (walltime, --time), or give workers a --lifetime below it with "
    "an adaptive cluster: their results then move first",
    "DEADLINE": "submit earlier, or request less time",
    "OUT_OF_MEMORY": "request more memory for the job (--mem), or set memory_limit below it",
    "CANCELLED": "look for who cancelled the job (jobs RUN); scale workers down through the "
    "cluster object, which moves their results first",
    "PREEMPTED": "use a queue without preemption, or an adaptive cluster and persist less",
    "NODE_FAIL": "ask the operators of the node; exclude it from the next job",
}
_CAUSES = {
    "oom killer": _OOM,
    "memory limit": _MEMORY,
    "exit": "look for sys.exit, os._exit or a library's exit in the task that ran; raise an "
    "exception instead, which fails only the task",
    "nanny lost": "look at the log of the host and of the batch system at that time: a limit of a "
    "control group can end all its processes",
    "no heartbeat": "look for tasks that hold the GIL for minutes, a stopped process, or the "
    "network",
    "connection lost": "look at the network, and at the log of the host at that time; a nanny "
    "records how its worker ends",
    "closed": "look at the reason, and at the worker's log",
}
_FAULT = (
    "look at the C library that the task's line calls, and at faulthandler's traceback in the "
    "worker's log; try another version of it, or run the task alone"
)
_KILLED = (
    "look at the kernel's log (dmesg) and the batch system's at that time; set memory_limit below "
    "the limit of the container or job"
)
_ASKED = (
    "look at the batch system's log; give workers a --lifetime below its limits, so that their "
    "results move first"
)


def advice_for(end: dict[str, Any]) -> str:
    """Return what to do about the unexpected end of a worker.

    Parameters
    ----------
    end : dict
        The columns ``cause`` and ``signal`` of ``worker_ends``, and ``job_state``.

    Examples
    --------
    >>> advice_for({"cause": "exit", "signal": None, "job_state": None})[:35]
    'look for sys.exit, os._exit or a li'
    """
    cause, signal = end["cause"], end["signal"]
    if cause in {"oom killer", "memory limit"}:
        return _CAUSES[cause]
    if (of_job := _OF_JOBS.get(end["job_state"] or "")) is not None:
        return of_job
    if cause == "signal":
        if signal in FAULTS:
            return _FAULT
        return _ASKED if signal == "SIGTERM" else _KILLED
    return _CAUSES.get(cause or "", "look at the worker's log")
