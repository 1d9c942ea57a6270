"""States of LSF's jobs, from ``bjobs -json``."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from dask_strata.recorder.jobs.commands import Deadline, ask, to_bytes, to_ns

_FIELDS = (
    "jobid stat queue job_name proj_name exec_host submit_time start_time finish_time run_time "
    "runtimelimit memlimit max_mem nalloc_slot exit_code exit_reason pend_reason"
)

_STATES = {
    "PEND": "PENDING", "PSUSP": "PENDING", "WAIT": "PENDING", "PROV": "PENDING", "RUN": "RUNNING",
    "SSUSP": "SUSPENDED", "USUSP": "SUSPENDED", "DONE": "COMPLETED",
}  # fmt: skip

#: Reasons of LSF for the end of a job, and the states that they stand for.
_REASONS = {
    "TERM_RUNLIMIT": "TIMEOUT",
    "TERM_CPULIMIT": "TIMEOUT",
    "TERM_DEADLINE": "TIMEOUT",
    "TERM_MEMLIMIT": "OUT_OF_MEMORY",
    "TERM_SWAP": "OUT_OF_MEMORY",
    "TERM_PREEMPT": "PREEMPTED",
    "TERM_OWNER": "CANCELLED",
    "TERM_FORCE_OWNER": "CANCELLED",
    "TERM_ADMIN": "CANCELLED",
    "TERM_FORCE_ADMIN": "CANCELLED",
    "TERM_BUCKET_KILL": "CANCELLED",
}

_TIMES = ("%b %d %H:%M:%S %Y", "%b %d %H:%M %Y")
_LEADING = re.compile(r"\d+(?:\.\d+)?")


def lsf_states(jobs: Collection[str], deadline: Deadline, *, final: bool) -> list[dict[str, Any]]:  # noqa: ARG001  as of every system
    """Return rows of ``job_states`` for those of the jobs that LSF knows.

    Parameters
    ----------
    jobs : collection of str
        Ids of jobs.
    deadline : Deadline
        Time limit of the command.
    final : bool
        Without effect: LSF has no other command for ended jobs.
    """
    # Without the variable, times have no year.
    year = {"LSB_DISPLAY_YEAR": "Y"}
    return parse(ask(deadline, "bjobs", "-a", "-json", "-o", _FIELDS, *jobs, **year))


def parse(text: str) -> list[dict[str, Any]]:
    """Return the rows in the output of ``bjobs -json``."""
    try:
        return [_row(record) for record in json.loads(text)["RECORDS"] if record.get("STAT")]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def _row(record: dict[str, Any]) -> dict[str, Any]:
    job = {name: None if value in {"", "-"} else str(value) for name, value in record.items()}
    stat, why = job.get("STAT"), job.get("EXIT_REASON")
    ended = stat in {"DONE", "EXIT"}
    state = _REASONS.get((why or "").partition(":")[0], "FAILED")
    # Each slot has its own name or a factor: 4*node1:node2
    hosts = [part.rpartition("*")[2] for part in (job.get("EXEC_HOST") or "").split(":")]
    nodes = list(dict.fromkeys(filter(None, hosts)))
    minutes, used = _leading(job.get("RUNTIMELIMIT")), _leading(job.get("RUN_TIME"))
    return {
        "job": job["JOBID"],
        "system": "lsf",
        "name": job.get("JOB_NAME"),
        "state": state if stat == "EXIT" else _STATES.get(stat or ""),
        "ended": ended,
        "reason": why or job.get("PEND_REASON"),
        "exit_code": _whole(job.get("EXIT_CODE")) if ended else None,
        "queue": job.get("QUEUE"),
        "account": job.get("PROJ_NAME"),
        "nodes": ",".join(nodes) or None,
        "n_nodes": len(nodes) or None,
        "submitted": _time(job.get("SUBMIT_TIME")),
        "start": _time(job.get("START_TIME")),
        # The finish time of a running job is an estimate.
        "stop": _time(job.get("FINISH_TIME")) if ended else None,
        "used_seconds": used,
        "time_limit_seconds": None if minutes is None else minutes * 60,
        "memory_limit_bytes": to_bytes(job.get("MEMLIMIT")),
        "memory_used_bytes": to_bytes(job.get("MAX_MEM")),
        "cpus": _whole(job.get("NALLOC_SLOT")),
        "source": "bjobs",
    }


def _time(text: str | None) -> int | None:
    """Return a time, which LSF may mark with a letter at its end: L, X or E."""
    return to_ns(re.sub(r" [A-Z]$", "", text or ""), *_TIMES)


def _leading(text: str | None) -> float | None:
    found = _LEADING.match(text or "")
    return float(found[0]) if found else None


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
