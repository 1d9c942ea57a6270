"""States of Slurm's jobs, from ``squeue``; of forgotten ones and their memory, from ``sacct``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dask_strata.recorder.jobs.commands import Deadline, ask, to_bytes, to_ns, to_seconds

#: Fields of `squeue`, with their widths: longer values are cut off. The name is the last one,
#: because it may contain the separator.
_QUEUE = {
    "JobID": 32,
    "State": 32,
    "Reason": 512,
    "exit_code": 16,
    "Partition": 128,
    "Account": 128,
    "SubmitTime": 32,
    "StartTime": 32,
    "EndTime": 32,
    "TimeUsed": 32,
    "TimeLimit": 32,
    "NumCPUs": 16,
    "NumNodes": 16,
    "tres-alloc": 512,
    "NodeList": 4096,
    "Name": 256,
}

_ACCOUNTING = (
    "JobIDRaw", "State", "ExitCode", "Partition", "Account", "Submit", "Start", "End", "ElapsedRaw",
    "TimelimitRaw", "AllocCPUS", "NNodes", "ReqMem", "MaxRSS", "NodeList", "JobName",
)  # fmt: skip

#: States of jobs that have not ended; every other state is final.
_OPEN = frozenset(
    {"PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "REQUEUED", "RESIZING",
     "SIGNALING", "STAGE_OUT", "STOPPED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"}
)  # fmt: skip

#: With this variable, times are printed as seconds since the epoch, whatever the time zone.
_EPOCH = {"SLURM_TIME_FORMAT": "%s"}


def slurm_states(jobs: Collection[str], deadline: Deadline, *, final: bool) -> list[dict[str, Any]]:
    """Return rows of ``job_states`` for those of the jobs that Slurm knows.

    Parameters
    ----------
    jobs : collection of str
        Ids of jobs, which consist of digits.
    deadline : Deadline
        Time limit of all commands.
    final : bool
        Whether to ask the accounting for the memory that ended jobs used, too.
    """
    ids = ",".join(jobs)
    fields = ",".join(f"{name}:{width}|" for name, width in _QUEUE.items())
    queue = ask(
        deadline, "squeue", "--noheader", "--states=all", f"--jobs={ids}", f"--Format={fields}",
        **_EPOCH,
    )  # fmt: skip
    found = {row["job"]: row for row in parse_queue(queue)}
    if not final and len(found) == len(jobs):
        return list(found.values())
    fields = ",".join(_ACCOUNTING)
    accounting = ask(
        deadline, "sacct", "--noheader", "--parsable2", "--noconvert", f"--jobs={ids}",
        f"--format={fields}", **_EPOCH,
    )  # fmt: skip
    for row in parse_accounting(accounting):
        known = found.setdefault(row["job"], row)
        known["memory_used_bytes"] = row["memory_used_bytes"]
    return list(found.values())


def parse_queue(text: str) -> list[dict[str, Any]]:
    """Return the rows in the output of ``squeue``."""
    rows = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split("|", len(_QUEUE) - 1)]
        if len(parts) != len(_QUEUE) or not parts[0].isdecimal():
            continue
        job = dict(zip(_QUEUE, parts, strict=True))
        ended = job["State"] not in _OPEN
        status = int(job["exit_code"]) if job["exit_code"].isdecimal() else 0
        resources = dict(part.partition("=")[::2] for part in job["tres-alloc"].split(","))
        rows.append(
            {
                **_common(job["JobID"], job["State"], job["NodeList"], ended=ended),
                "reason": _text(job["Reason"]),
                "exit_code": status >> 8 if ended else None,
                "signal": (status & 0x7F) or None if ended else None,
                "queue": _text(job["Partition"]),
                "account": _text(job["Account"]),
                "submitted": to_ns(job["SubmitTime"]),
                # Slurm prints an estimate for a job that has not started or ended.
                "start": to_ns(job["StartTime"]) if job["NodeList"] else None,
                "stop": to_ns(job["EndTime"]) if ended else None,
                "used_seconds": to_seconds(job["TimeUsed"]),
                "time_limit_seconds": to_seconds(job["TimeLimit"]),
                "cpus": _number(job["NumCPUs"]),
                "n_nodes": _number(job["NumNodes"]),
                "memory_limit_bytes": to_bytes(resources.get("mem")),
                "name": _text(job["Name"].removesuffix("|").strip()),
                "source": "squeue",
            }
        )
    return rows


def parse_accounting(text: str) -> list[dict[str, Any]]:
    """Return the rows in the output of ``sacct``, with the memory of the largest step."""
    rows: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        parts = line.split("|", len(_ACCOUNTING) - 1)
        if len(parts) != len(_ACCOUNTING):
            continue
        job = dict(zip(_ACCOUNTING, parts, strict=True))
        number, step, _ = job["JobIDRaw"].partition(".")
        if step:  # such as 7.batch: the job's own line comes before and has no memory
            if row := rows.get(number):
                used = (row["memory_used_bytes"], to_bytes(job["MaxRSS"]))
                row["memory_used_bytes"] = max(filter(None, used), default=None)
            continue
        if not number.isdecimal():
            continue
        state = job["State"].partition(" ")[0]  # "CANCELLED by 1000"
        ended = state not in _OPEN
        code, _, signal = job["ExitCode"].partition(":")
        minutes = _number(job["TimelimitRaw"])
        nodes = "" if job["NodeList"] == "None assigned" else job["NodeList"]
        rows[number] = {
            **_common(number, state, nodes, ended=ended),
            "exit_code": _number(code) if ended else None,
            "signal": (_number(signal) or None) if ended else None,
            "queue": _text(job["Partition"]),
            "account": _text(job["Account"]),
            "submitted": to_ns(job["Submit"]),
            "start": to_ns(job["Start"]) if nodes else None,
            "stop": to_ns(job["End"]) if ended else None,
            "used_seconds": to_seconds(job["ElapsedRaw"]),
            "time_limit_seconds": None if minutes is None else minutes * 60.0,
            "cpus": _number(job["AllocCPUS"]),
            "n_nodes": _number(job["NNodes"]),
            "memory_limit_bytes": _requested(job),
            "memory_used_bytes": to_bytes(job["MaxRSS"]),
            "name": _text(job["JobName"]),
            "source": "sacct",
        }
    return list(rows.values())


def _common(job: str, state: str, nodes: str, *, ended: bool) -> dict[str, Any]:
    return {
        "job": job,
        "system": "slurm",
        "state": state or None,
        "ended": ended,
        "nodes": nodes or None,
    }


def _requested(job: dict[str, str]) -> int | None:
    """Return the requested memory of a job; before Slurm 21.08 it is that of a node or CPU."""
    size, per = job["ReqMem"][:-1], job["ReqMem"][-1:]
    if per not in {"n", "c"}:
        return to_bytes(job["ReqMem"])
    each, count = to_bytes(size), _number(job["NNodes" if per == "n" else "AllocCPUS"])
    return None if each is None or count is None else each * count


def _text(value: str) -> str | None:
    return None if value in {"", "None", "(null)", "N/A", "Unknown"} else value


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
