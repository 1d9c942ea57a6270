"""Files and calls of the tasks that the critical path waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dask_strata.analysis.diagnosis.samples import Waited

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
        Seconds of these at lines that wait for files, by samples.
    compute_seconds : float
        Seconds of all its executions on the path.
    read_calls, write_calls, read_bytes, write_bytes, n_opened : int
        Of these executions.
    """

    prefix: str
    segments: dict[int, float]
    waits: dict[int, float]
    compute_seconds: float
    read_calls: int
    write_calls: int
    read_bytes: int
    write_bytes: int
    n_opened: int


def is_file(waited: Waited) -> bool:
    """Return whether samples show a wait for a file.

    Parameters
    ----------
    waited : Waited
        Samples of one place.
    """
    return waited.waiting == "files"


def file_uses(evidence: Evidence) -> list[FileUse]:
    """Return the use of files of the executions on the path, by prefix.

    Parameters
    ----------
    evidence : Evidence
        Facts of the run.
    """
    found: dict[str, tuple[dict[int, float], dict[int, float], set[int]]] = {}
    for index, seconds, runner in evidence.runner_seconds():
        segments, waits, attempts = found.setdefault(runner.prefix or "", ({}, {}, set()))
        segments[index] = seconds
        attempts.add(runner.attempt)
        share = max(
            evidence.samples.share(runner, is_file), evidence.samples.place_share(runner, "files")
        )
        if share:
            waits[index] = seconds * share
    uses = []
    for prefix, (segments, waits, attempts) in found.items():
        rows = [evidence.attempts[a] for a in attempts if a in evidence.attempts]
        sums = [
            sum(row[name] or 0 for row in rows)
            for name in ("read_calls", "write_calls", "read_bytes", "write_bytes", "n_opened")
        ]
        compute = sum(row["compute_seconds"] or 0.0 for row in rows)
        if compute > 0:
            uses.append(FileUse(prefix, segments, waits, compute, *sums))
    return uses
