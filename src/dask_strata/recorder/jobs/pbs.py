"""States of jobs of PBS Professional, OpenPBS and Torque, from ``qstat -f``."""

from __future__ import annotations

import json
import math
import re
import signal
from collections.abc import Collection, Iterator
from typing import Any

from dask_strata.recorder.jobs.commands import Deadline, ask, to_bytes, to_ns, to_seconds

#: States by the letter of ``job_state``; F and C are ended jobs.
_STATES = {
    "Q": "PENDING", "H": "PENDING", "W": "PENDING", "T": "PENDING", "M": "PENDING",
    "R": "RUNNING", "E": "COMPLETING", "B": "RUNNING", "S": "SUSPENDED", "U": "SUSPENDED",
}  # fmt: skip
_ENDED = frozenset({"F", "C", "X"})

#: Negative values of ``Exit_status`` that name a limit.
_LIMITS = {-29: "TIMEOUT", -28: "TIMEOUT", -27: "OUT_OF_MEMORY", -26: "OUT_OF_MEMORY"}

#: Values of ``Exit_status`` from here on are this number and a signal.
_SIGNALS = 256

_TIME = "%a %b %d %H:%M:%S %Y"
_NESTED = re.compile(r"(Resource_List|resources_used)\.(\w+)")


def pbs_states(jobs: Collection[str], deadline: Deadline, *, final: bool) -> list[dict[str, Any]]:  # noqa: ARG001  as of every system
    """Return rows of ``job_states`` for those of the jobs that PBS knows.

    Parameters
    ----------
    jobs : collection of str
        Ids of jobs.
    deadline : Deadline
        Time limit of all commands.
    final : bool
        Without effect: PBS has no other command for ended jobs.
    """
    rows = parse_json(ask(deadline, "qstat", "-x", "-f", "-F", "json", *jobs))
    # Torque has neither option: its -x prints XML.
    return rows or parse_text(ask(deadline, "qstat", "-f", *jobs))


def parse_json(text: str) -> list[dict[str, Any]]:
    """Return the rows in the output of ``qstat -f -F json``."""
    try:
        jobs = json.loads(text)["Jobs"]
        return [_row(job, facts) for job, facts in jobs.items()]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def parse_text(text: str) -> list[dict[str, Any]]:
    """Return the rows in the output of ``qstat -f``, which continues long values after a tab."""
    return [_row(job, facts) for job, facts in _text_jobs(text)]


def _text_jobs(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    job, facts = "", dict[str, Any]()
    for line in re.sub(r"\n\t", "", text).splitlines():
        if line.startswith(("Job Id: ", "Job: ")):
            if job:
                yield job, facts
            job, facts = line.partition(": ")[2].strip(), {}
            continue
        name, equals, value = line.strip().partition(" = ")
        if not equals:
            continue
        nested = _NESTED.fullmatch(name)
        if nested:
            facts.setdefault(nested[1], {})[nested[2]] = value
        else:
            facts[name] = value
    if job:
        yield job, facts


def _row(job: str, facts: dict[str, Any]) -> dict[str, Any]:
    asked, used = facts.get("Resource_List") or {}, facts.get("resources_used") or {}
    letter, status = str(facts.get("job_state", "")), _number(facts.get("Exit_status"))
    started = to_ns(facts.get("stime") or facts.get("start_time"), _TIME)
    ended = letter in _ENDED
    # ``exec_host`` is such as node1/0*4+node2/1*4.
    hosts = [part.partition("/")[0] for part in str(facts.get("exec_host") or "").split("+")]
    nodes = list(dict.fromkeys(filter(None, hosts)))
    plain = status is not None and 0 <= status < _SIGNALS
    used_seconds = to_seconds(used.get("walltime"))
    limit_seconds = to_seconds(asked.get("walltime"))
    used_bytes, limit_bytes = to_bytes(used.get("mem")), to_bytes(asked.get("mem"))
    state = _STATES.get(letter)
    if ended:
        reached = None
        if (used_seconds or 0) >= (limit_seconds or math.inf):
            reached = "TIMEOUT"
        elif (used_bytes or 0) >= (limit_bytes or math.inf):
            reached = "OUT_OF_MEMORY"
        state = _ended_as(status, started, reached)
    return {
        "job": short_id(job),
        "system": "pbs",
        "name": facts.get("Job_Name"),
        "state": state,
        "ended": ended,
        "reason": facts.get("comment"),
        "exit_code": status if plain else None,
        "signal": status % _SIGNALS if status is not None and status >= _SIGNALS else None,
        "queue": facts.get("queue"),
        "account": facts.get("Account_Name") or facts.get("project"),
        "nodes": ",".join(nodes) or None,
        "n_nodes": len(nodes) or None,
        "submitted": to_ns(facts.get("qtime") or facts.get("ctime"), _TIME),
        "start": started,
        "stop": to_ns(facts.get("obittime") or facts.get("comp_time") or facts.get("mtime"), _TIME)
        if ended
        else None,
        "used_seconds": used_seconds,
        "time_limit_seconds": limit_seconds,
        "memory_limit_bytes": limit_bytes,
        "memory_used_bytes": used_bytes,
        "cpus": _number(asked.get("ncpus")),
        "source": "qstat",
    }


def short_id(job: str) -> str:
    """Return the id of a job without the name of its server, as dask-jobqueue has it.

    >>> short_id("77[3].pbs.example.org")
    '77[3]'
    """
    return job.partition(".")[0]


def _ended_as(status: int | None, started: int | None, reached: str | None) -> str | None:
    if status is None:
        return None if started else "CANCELLED"  # removed from the queue
    if status < 0:
        return _LIMITS.get(status, "FAILED")
    if status == _SIGNALS + signal.SIGTERM:  # PBS sends it at a limit and for ``qdel``
        return reached or "CANCELLED"
    return "FAILED" if status else "COMPLETED"


def _number(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None
