"""The table of tasks and workers that were stuck while the run was recorded."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from dask_strata.schema.columns import KEY, LEFT_OUT, TIME, WORKER, Table, col
from dask_strata.schema.owners import owner_of

#: Values of ``stuck.kind``.
LONG_RUNNING = "long-running"
NOBODY_COMPUTES = "nobody-computes"
NO_ANSWER = "no-answer"

#: Time between two checks of the recorder, in seconds.
CHECK_SECONDS = 10.0

STUCK = (
    Table(
        "stuck",
        "task or worker that did not move, as found by one of the scheduler's checks (every "
        "10 s); all rows of a check have the same time",
        3,
        "workflow system",
        "scheduler",
        (
            TIME,
            col(
                "kind",
                "text",
                "long-running (a task that runs far longer than others of its prefix), "
                "nobody-computes (a task that waits for what no worker computes), no-answer (a "
                "worker whose event loop does not answer)",
            ),
            KEY,
            col("prefix", "text", "Dask's prefix of the key"),
            WORKER,
            col("worker_name", "text", "Dask's name of the worker"),
            col(
                "since",
                "time",
                "since when: the start of the execution, the first moment that the task was seen "
                "waiting, or the last heartbeat",
            ),
            col("seconds", "seconds", "time from then until the check"),
            col(
                "typical_seconds",
                "seconds",
                "median of the last finished executions of the prefix (at most 101); null if none "
                "has finished during the recording",
            ),
            col(
                "n_finished",
                "int",
                "finished executions of the prefix that the recorder has seen: each of at least "
                "0.1 s, and a part of shorter ones",
            ),
            col(
                "reason",
                "long",
                "what it waits for: a dependency, a restriction, an answer; null for a task that "
                "runs",
            ),
            col("n_others", "int", "further tasks that wait for the same reason, without a row"),
            col(
                "stack",
                "long",
                "Python stack of the task's thread, by Dask's own call-stack request: a line a "
                "frame, `function (file:line)`, outermost first; null if the worker did not "
                "return it, or no thread runs the task",
                sensitivity="code",
            ),
        ),
        prov="activity",
    ),
)

#: A line of the column ``stack``.
_FRAME = re.compile(r"(?P<function>.+) \((?P<file>.*):(?P<line>\w+)\)")

#: Most of the user's frames in a sentence.
_USERS_FRAMES = 2


def place_in(stack: str | None) -> str:
    r"""Return the innermost frames of a stack in a line: the user's, and the library's.

    Of frames that are not the user's, show the innermost, and the one that the user's line called.

    Parameters
    ----------
    stack : str or None
        A value of the column ``stack``.

    >>> place_in("process (/me/job.py:12)\nread (/me/reader.py:88)\nget (/lib/python3.11/q.py:3)")
    'get (q.py:3) ← read (reader.py:88) ← process (job.py:12)'
    """
    if not stack or stack == LEFT_OUT:
        return ""
    frames = [match for line in stack.splitlines() if (match := _FRAME.fullmatch(line))]
    users = [i for i, f in enumerate(frames) if owner_of(f["file"]).owner == "user"]
    last = users[-1] if users else -1
    others = dict.fromkeys((len(frames) - 1, last + 1)) if last < len(frames) - 1 else ()
    shown = [*others, *reversed(users[-_USERS_FRAMES:])]
    return " ← ".join(
        f"{f['function']} ({_file_name(f['file'])}:{f['line']})"
        for f in map(frames.__getitem__, shown)
    )


def _file_name(file: str) -> str:
    return file.replace("\\", "/").rpartition("/")[2]


def worker_label(row: Mapping[str, Any]) -> str:
    """Return a worker's short name, as in ``worker 2``, or its address; empty if there is none."""
    name, address = row.get("worker_name"), row.get("worker")
    return f"worker {name or address}" if name or address else ""


def sentence(row: Mapping[str, Any], duration: Callable[[float], str]) -> str:
    """Return a row of ``stuck`` in words.

    Parameters
    ----------
    row : mapping
        The row; its key is a text for persons.
    duration : callable
        Returns a number of seconds in words.

    >>> print(sentence({"kind": "long-running", "key": "load-3f", "prefix": "load", "seconds": 240,
    ...     "worker_name": "2", "typical_seconds": 1.2, "stack": "read (/me/reader.py:88)"},
    ...     "{} s".format))
    load-3f has run for 240 s on worker 2, typical for load is 1.2 s: in read (reader.py:88)
    """
    label, seconds = worker_label(row), duration(row["seconds"])
    if row["kind"] == NO_ANSWER:
        return f"{label} has not answered for {seconds}: {row.get('reason') or 'no heartbeat'}"
    where = f" on {label}" if label else ""
    if row["kind"] == LONG_RUNNING:
        typical = f"no other {row['prefix']} has finished yet"
        if row.get("typical_seconds") is not None:
            typical = f"typical for {row['prefix']} is {duration(row['typical_seconds'])}"
        place = place_in(row.get("stack"))
        line = f"{row['key']} has run for {seconds}{where}, {typical}"
        return f"{line}: in {place}" if place else line
    others = row.get("n_others") or 0
    more = f" ({others:,} more {'task waits' if others == 1 else 'tasks wait'})" if others else ""
    return f"{row['key']} has waited for {seconds}{where}: {row.get('reason') or 'unknown'}{more}"
