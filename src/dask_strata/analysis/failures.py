"""Exceptions of failed tasks; those that differ in an address only are one failure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dask_strata.analysis.worker_ends import WorkerEnds, worker_ends

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Parts of a message that name one object, process, connection or temporary file. Runs in linear
#: time: repetitions are bounded, or start only where the previous one ended.
_ADDRESS = re.compile(
    r"""
    # A task's key with Dask's hash: the whole key if it is a tuple.
    \(['"][^'"\s]*-[0-9a-f]{32}['"](?:,\s\d+)*\)
    # Connections of Dask; host and port of other addresses, as a text or as Python prints them.
    | \b(?:tcp|tls|ucx|ucxx|inproc|wss?)://[^\s'",;<>()]+
    | (?<=://)[\w.\-]+:\d+
    | \(['"][0-9a-fA-F]*[.:][0-9a-fA-F.:]+['"],\s\d+
    | \b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?(?!\.?\w)
    | \[[0-9a-fA-F:.]+(?:%\w+)?\]:\d+
    | (?<=\bport)[=:\s]\s?\d+
    # Objects and processes.
    | \b0x[0-9a-fA-F]{6,16}\b
    | (?i:(?<=\bpid))[=:\s]\s?\d+
    # Names that tempfile and mktemp make, and folders of Dask's workers.
    | \btmp(?:[a-z0-9_]{8}|\.[A-Za-z0-9]{6,12})\b
    | (?<=/)(?:dask-)?worker-[a-z0-9_]{8}\b
    # Random and hashed ids. Where a file's ending follows, users need to know which file it is.
    | (?<![0-9A-Za-z])
      (?: [0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}
        # No number with an exponent.
        | (?!\d+[eE](?:[+\-]|\d*\b))(?=[0-9]*[a-fA-F])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,} )
      (?![0-9A-Za-z]|[\w\-]{0,100}\.[A-Za-z])
    """,
    re.VERBOSE,
)

#: A host or a file, and a port or a line.
_HOST = re.compile(r"(?<![\w.\-/])([A-Za-z][\w.\-]*):\d{2,5}\b")

#: Escape sequences in the representation of a text.
_ESCAPED = re.compile(r"\\(?:[nrt]|(['\"]))")


#: Dask's exception of a task that it gives up because workers died.
_KILLED = "KilledWorker"


@dataclass(frozen=True)
class Failure:
    """Tasks of a prefix that failed alike, without those that depend on them.

    Attributes
    ----------
    prefix : str
        The prefix.
    exception : str
        The exception of the first of them.
    count : int
        Number of tasks.
    example : str
        Key of the first of them.
    worker_ends : tuple of WorkerEnds
        How workers ended that these tasks were assigned to; of tasks that failed because of it.
    """

    prefix: str
    exception: str
    count: int
    example: str
    worker_ends: tuple[WorkerEnds, ...] = ()


def failures(run: Run) -> tuple[Failure, ...]:
    """Return the exceptions of failed tasks, the most frequent first.

    Exceptions that differ in addresses only are counted together. Tasks that failed only because a
    dependency failed are not counted.

    Parameters
    ----------
    run : Run
        The run.
    """
    hosts = {row["host"] for row in run.rows("select distinct host from processes")}
    kinds: dict[tuple[str, str], tuple[Failure, set[int]]] = {}
    for row in run.rows("""
        select coalesce(k.prefix, key_prefix(t.key, t.key_type), '(unknown)') as prefix,
               t.exception,
               list(distinct t._key) as keys,
               coalesce(arg_min(t.key, t.seq), any_value(t.key)) as key
        from scheduler_transitions t
        left join _definitions k on k._key = t._key
        where t.finish_state = 'erred' and t.exception is not null
          and (t.blame is null or t._blame = t._key)
        group by 1, 2 order by min(t.seq), prefix, exception
    """):
        pattern = without_addresses(row["exception"], row["key"], hosts)
        first = Failure(row["prefix"], row["exception"], 0, row["key"])
        kinds.setdefault((row["prefix"], pattern), (first, set()))[1].update(row["keys"])
    found = (
        replace(
            first,
            count=len(keys),
            worker_ends=worker_ends(run, keys) if _KILLED in first.exception else (),
        )
        for first, keys in kinds.values()
    )
    return tuple(sorted(found, key=lambda f: (-f.count, f.prefix, f.exception)))


def without_addresses(message: str, key: str = "", hosts: Collection[str | None] = ()) -> str:
    """Return a message with an ellipsis for each part that names one object or process.

    These are addresses of objects and connections, process ids, random and hashed ids, temporary
    files, and keys. Numbers and names of other files remain.

    Parameters
    ----------
    message : str
        Text of an exception.
    key : str, optional
        Key of its task.
    hosts : collection of str, optional
        Names of hosts: a port may follow them.

    Examples
    --------
    >>> without_addresses("<Lock at 0x7f3a5c00> of tcp://10.0.0.1:41234, try 3 of a.csv")
    '<Lock at …> of …, try 3 of a.csv'
    """
    message = _ESCAPED.sub(lambda match: match[1] or " ", message)
    if key.startswith("("):
        message = message.replace(key, "…")

    def without_port(match: re.Match[str]) -> str:
        return "…" if match[1] in {"localhost", *hosts} else match[0]

    return _ADDRESS.sub("…", _HOST.sub(without_port, message))
