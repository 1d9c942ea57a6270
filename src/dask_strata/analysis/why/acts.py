"""Whose act the end of a worker was, in a sentence that states no more than is on record."""

from __future__ import annotations

from typing import Any

from dask_strata.analysis.words import duration, size

#: Begins of the reasons of planned ends, and what they mean.
_PLANNED = (
    ("retire", "retired (client.retire_workers, or an adaptive cluster)"),
    ("nanny-close", "closed by the nanny (cluster.close, scaling down, or client.shutdown)"),
    ("scheduler-close", "closed with the scheduler"),
    ("cluster-close", "ended by cluster.close"),
    ("cluster-scale-down", "ended by the cluster object as it scaled down"),
    ("client-restart", "restarted by client.restart"),
    ("worker-lifetime", "closed at the end of --lifetime"),
    ("worker-close", "closed by itself"),
    ("signal-", "closed in order after a signal to it or its nanny"),
)

#: Signals that the processor or the C library sends to a process that has a fault.
FAULTS = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"})

_CANCEL = {"slurm": "scancel", "pbs": "qdel", "lsf": "bkill"}


def planned_words(reason: str | None) -> str:
    """Return how a worker ended as planned.

    Parameters
    ----------
    reason : str or None
        Dask's reason, as in ``worker_ends``.

    Examples
    --------
    >>> planned_words("expected: retire-workers-1")
    'retired (client.retire_workers, or an adaptive cluster)'
    >>> planned_words("unexpected: handle-worker-cleanup-1")
    'ended in order, shortly before the scheduler'
    """
    state, _, why = (reason or "").partition(": ")
    if state == "unexpected" and "client-restart" not in why:
        return "ended in order, shortly before the scheduler"
    for begin, words in _PLANNED:
        if begin in why:
            return words
    return f"closed ({reason})"


def act_of(end: dict[str, Any]) -> str:
    """Return whose act the end of a worker was, as far as the record shows it.

    Parameters
    ----------
    end : dict
        A row of ``worker_ends``, with ``exit_reason``, and ``system``, ``job``, ``job_state`` and
        ``time_limit_seconds`` of the batch job that explains it.
    """
    if end["ended"] == "planned":
        return _by_plan(end)
    cause = end["cause"]
    if end["job_state"] and cause not in {"oom killer", "memory limit"}:
        return _by_batch_system(end)
    match cause:
        case "oom killer":
            return (
                "the kernel's OOM killer, which ended a process of the control group then: "
                f"{end['evidence']}"
            )
        case "memory limit":
            return _by_nanny(end)
        case "signal":
            return _by_signal(end)
        case "exit":
            return _by_itself(end)
    return _unexplained(end)


def _by_plan(end: dict[str, Any]) -> str:
    if end["job_state"]:
        return _by_batch_system(end)
    if "signal-" in (end["reason"] or ""):
        return "a batch system, a container runtime or a user: the sender is not on record"
    return f"Dask or the cluster, as planned: {end['reason']}"


def _by_batch_system(end: dict[str, Any]) -> str:
    system = end["system"] or "batch"
    job = f"{system} job {end['job']}"
    match end["job_state"]:
        case "TIMEOUT":
            limit = end["time_limit_seconds"]
            words = "its time limit" + ("" if limit is None else f" of {duration(limit)}")
            return f"the batch system: {job} reached {words}"
        case "CANCELLED":
            command = _CANCEL.get(system)
            return f"a user or program cancelled {job}" + (f" ({command})" if command else "")
        case "OUT_OF_MEMORY":
            return f"the batch system or the kernel: {job} ran out of memory"
        case "PREEMPTED":
            return f"the batch system: {job} was preempted"
        case "NODE_FAIL":
            return f"a node of {job} failed"
    return f"the batch system: {job} ended as {end['job_state']}"


def _by_nanny(end: dict[str, Any]) -> str:
    used, limit = end["memory_bytes"], end["memory_limit_bytes"]
    return (
        f"its nanny, at Dask's memory limit: {size(used)} of {size(limit)} were in use"
        if limit is not None
        else f"its nanny, at Dask's memory limit: {size(used)} were in use"
    )


def _by_signal(end: dict[str, Any]) -> str:
    signal = end["signal"]
    if signal in FAULTS:
        return f"a fault in compiled code, unless another process sent {signal}"
    if signal == "SIGTERM":
        return "a batch system, a container runtime or a user: the sender is not on record"
    if signal != "SIGKILL":
        return "the sender is not on record"
    sender = "a user, a batch system or a container runtime: the sender is not on record"
    if end["evidence"] is None:
        return f"{sender}; whether it was the kernel's OOM killer is unknown"
    return f"{sender}; not the kernel's OOM killer, whose counter did not rise"


def _by_itself(end: dict[str, Any]) -> str:
    status = end["exit_status"]
    if end["exit_reason"] is None:
        return (
            f"the process itself: it exited with status {status} without closing "
            "(os._exit, or the exit of a C library)"
        )
    return (
        f"the process itself: it exited with status {status}, and Python ended in order "
        f"({end['exit_reason']})"
    )


def _unexplained(end: dict[str, Any]) -> str:
    match end["cause"]:
        case "nanny lost":
            return (
                f"whoever killed the nanny (pid {end['nanny_pid']}), or a failure of the host: "
                "both records stop; a worker ends itself without its nanny"
            )
        case "no heartbeat":
            return "the scheduler, after too long without a heartbeat; the process may live on"
        case "connection lost":
            return "unknown: the connection broke, and no end of the process on record explains it"
        case "closed":
            return f"Dask: {end['reason']}"
    return "unknown: the cause is not on record"
