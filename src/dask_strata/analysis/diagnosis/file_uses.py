"""Files and calls of the tasks that the critical path waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dask_strata.analysis.diagnosis.places import module_of
from dask_strata.analysis.diagnosis.samples import Runner, Waited

if TYPE_CHECKING:
    from dask_strata.analysis.diagnosis.evidence import Evidence


class FileUse(NamedTuple):
    """Files of the executions on the path of one prefix.

    Attributes
    ----------
    prefix : str
        The prefix.
    segments : dict
        Seconds of its segments on the path, by index.
    waits : dict
        Seconds of these in which the thread waited for files, or at lines that wait for files again
        and again, by samples.
    lookups : dict
        Seconds of these in functions of Python that look up files, by samples.
    openings : dict
        Seconds of these in functions of Python that open a file, and may read or write all of it.
    compute_seconds : float
        Seconds of all its executions on the path.
    read_calls, write_calls, read_bytes, write_bytes, n_opened : int
        Of these executions.
    """

    prefix: str
    segments: dict[int, float]
    waits: dict[int, float]
    lookups: dict[int, float]
    openings: dict[int, float]
    compute_seconds: float
    read_calls: int
    write_calls: int
    read_bytes: int
    write_bytes: int
    n_opened: int


#: Seconds of the CPU that a read or a write takes at least.
CALL_SECONDS = 0.75e-6

#: Reads, writes and opens a second from which short waits of a task are those for files.
_SHORT_RATE = 200


def _file_wait(evidence: Evidence, runner: Runner) -> Callable[[Waited], bool]:
    """Return whether samples of an execution show waits for files, as a function of their place.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    runner : Runner
        The execution. If it made many calls, its short waits were for files, too.
    """
    row = evidence.attempts.get(runner.attempt, {})
    names = ("read_calls", "write_calls", "n_opened")
    calls = sum(row.get(name) or 0 for name in names)
    short = calls >= _SHORT_RATE * (row.get("compute_seconds") or 1.0)
    kinds = ("files", "other") if short else ("files",)
    return lambda waited: waited.waiting in kinds


def file_uses(evidence: Evidence) -> list[FileUse]:
    """Return the use of files of the executions on the path, by prefix.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    samples = evidence.samples
    found: dict[str, tuple[dict[str, dict[int, float]], set[int]]] = {}
    for index, seconds, runner in evidence.runner_seconds():
        empty: dict[str, dict[int, float]] = {name: {} for name in _SECONDS}
        times, attempts = found.setdefault(runner.prefix or "", (empty, set()))
        attempts.add(runner.attempt)
        chosen = _file_wait(evidence, runner)
        shares = {
            "segments": 1.0,
            "waits": max(samples.share(runner, chosen), samples.place_share(runner, chosen)),
            "lookups": samples.time_share(runner, _is_lookup),
            "openings": samples.time_share(runner, _is_opening),
        }
        for name, share in shares.items():
            if share:
                times[name][index] = seconds * share
    uses = []
    for prefix, (times, attempts) in found.items():
        rows = [evidence.attempts[a] for a in attempts if a in evidence.attempts]
        sums = [
            sum(row[name] or 0 for row in rows)
            for name in ("read_calls", "write_calls", "read_bytes", "write_bytes", "n_opened")
        ]
        compute = sum(row["compute_seconds"] or 0.0 for row in rows)
        if compute > 0:
            segments, waits, lookups, openings = (times[name] for name in _SECONDS)
            uses.append(FileUse(prefix, segments, waits, lookups, openings, compute, *sums))
    return uses


_SECONDS = ("segments", "waits", "lookups", "openings")

#: Modules of Python that look up and list files, and their functions that do so.
_MODULES = frozenset({"pathlib", "genericpath", "posixpath", "ntpath", "glob", "os"})
_LOOKUPS = frozenset({
    "exists", "lexists", "stat", "lstat", "is_file", "is_dir", "is_symlink", "isfile", "isdir",
    "islink", "getsize", "getmtime", "getatime", "getctime", "samefile", "iterdir", "glob", "iglob",
    "rglob", "walk", "fwalk", "_walk", "resolve", "realpath",
})  # fmt: skip
_OPENINGS = frozenset({"open", "read_bytes", "read_text", "write_bytes", "write_text"})


def _is_lookup(waited: Waited) -> bool:
    """Return whether samples are in a function of Python that looks up or lists files."""
    return _calls(waited, _LOOKUPS)


def _is_opening(waited: Waited) -> bool:
    """Return whether samples are in a function of Python that opens a file."""
    return _calls(waited, _OPENINGS)


def _calls(waited: Waited, functions: frozenset[str]) -> bool:
    if waited.calls is None or module_of(waited.calls) not in _MODULES:
        return False
    return waited.calls.rpartition(":")[2] in functions
