"""Stacks of Dask's statistical profile, summed over processes and cycles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from dask_strata.analysis.tasks import only
from dask_strata.errors import StrataError, UsageError

if TYPE_CHECKING:
    from dask_strata.run import Run


#: Noun for a row of ``stacks``.
_SAMPLE = "sample of the profile"

#: Seconds that no recording has, and that are still a time in ns: 30 years.
_LATEST = 1e9


class Function(NamedTuple):
    """A function in a stack: its name, file and first line; the latter two may be unknown."""

    name: str
    module: str | None
    line: int | None

    @property
    def place(self) -> str:
        """Name of the file, and line: empty if unknown.

        >>> Function("load", "/home/u/a.py", 7).place
        'a.py:7'
        """
        file = PurePosixPath((self.module or "").replace("\\", "/")).name
        return file if self.line is None or not file else f"{file}:{self.line}"

    @property
    def text(self) -> str:
        """Name and place.

        >>> Function("load", "/home/u/a.py", 7).text, Function("dot", None, None).text
        ('load (a.py:7)', 'dot')
        """
        return f"{self.name} ({self.place})" if self.place else self.name


@dataclass(frozen=True)
class Stack:
    """A stack of a prefix, and the samples that found it.

    Attributes
    ----------
    prefix : str or None
        Prefix of the tasks; None for event loops.
    frames : tuple of Function
        The functions, the outermost first; empty if Dask could not read the stack.
    n_samples : int
        Number of samples.
    seconds : float
        Dask's estimate: samples times its interval.
    """

    prefix: str | None
    frames: tuple[Function, ...]
    n_samples: int
    seconds: float


@dataclass(frozen=True)
class StackFilter:
    """Which samples to read.

    Attributes
    ----------
    prefix : str or None
        Only of tasks of this prefix.
    worker : str or None
        Only of this worker: its address or name.
    begin, end : float or None
        Only cycles that overlap this time: seconds since the recording of the first process began.
    event_loops : bool
        Samples of event loops instead of tasks.
    """

    prefix: str | None = None
    worker: str | None = None
    begin: float | None = None
    end: float | None = None
    event_loops: bool = False

    def where(self, run: Run) -> tuple[str, list[object]]:
        """Return the condition on ``stacks`` and its parameters.

        Raises
        ------
        StrataError
            No profile is on record.
        UsageError
            No sample has the prefix or worker, or the times are in the wrong order.
        """
        kind = "event loop" if self.event_loops else "task"
        if not has_stacks(run, kind):
            if self.event_loops:
                raise StrataError(
                    "No profile of event loops is on record in this run.",
                    hint="Dask makes none under Python 3.11, nor of a loop that was idle whenever "
                    "it looked, once a second.",
                )
            raise StrataError(
                "No statistical profile is on record in this run.",
                hint="Dask makes none if distributed.worker.profile.enabled is false, nor of tasks "
                "that end within its interval of 10 ms.",
            )
        if self.begin is not None and self.end is not None and self.begin >= self.end:
            raise UsageError(f"--from {self.begin:g} is not before --to {self.end:g}.")
        for option, seconds in (("--from", self.begin), ("--to", self.end)):
            if seconds is not None and not abs(seconds) < _LATEST:
                raise UsageError(f"{option} {seconds:g} is no time of a recording, in seconds.")
        conditions: list[str] = ["kind = ?"]
        values: list[object] = [kind]
        addresses = None if self.worker is None else _addresses(run, self.worker)
        prefixes = None if self.prefix is None else [self.prefix]
        for column, wanted in (("prefix", prefixes), ("worker", addresses)):
            if wanted is not None:
                query = f"select distinct {column} from stacks where {column} is not null"  # noqa: S608
                table = run.arrow(query)
                known = set(table[column].to_pylist())
                only(table, column, next((w for w in wanted if w in known), wanted[0]), _SAMPLE)
                conditions.append(f"list_contains(?, {column})")
                values.append(wanted)
        origin = "(select min(epoch_ns(start)) from processes)"
        bounds: list[object] = []
        for column, sign, seconds in (("stop", ">", self.begin), ("start", "<", self.end)):
            if seconds is not None:
                conditions.append(f"epoch_ns({column}) {sign} {origin} + ?")
                bounds.append(int(seconds * 1e9))
        return " and ".join(conditions), [*values, *bounds]


def has_stacks(run: Run, kind: str = "task") -> bool:
    """Return whether a sample of Dask's statistical profile is on record.

    Parameters
    ----------
    run : Run
        The run.
    kind : str, optional
        task or event loop.
    """
    return bool(run.rows("select 1 from stacks where kind = ? limit 1", kind))


def _addresses(run: Run, worker: str) -> list[str]:
    """Return the addresses of a worker: one that is restarted has its name, and another address."""
    rows = run.rows(
        "select distinct address from processes where role = 'worker' and ? in (name, address)",
        worker,
    )
    return [row["address"] for row in rows] or [worker]


def stacks(run: Run, which: StackFilter | None = None) -> list[Stack]:
    """Return the stacks of a run's profile by prefix, those with most samples first.

    Parameters
    ----------
    run : Run
        The run.
    which : StackFilter, optional
        Which samples; by default those of all tasks.

    Raises
    ------
    StrataError
        No profile is on record.
    UsageError
        See `StackFilter.where`.
    """
    condition, values = (which or StackFilter()).where(run)
    frames = _frames(run)
    known: dict[tuple[str, int | None], tuple[Function, ...]] = {}
    sums: dict[tuple[str | None, tuple[Function, ...]], list[float]] = {}
    for row in run.rows(
        f"""
        select process, prefix, frame, sum(n_samples)::bigint as n, sum(estimated_seconds) as s
        from stacks where {condition} group by process, prefix, frame
        """,  # noqa: S608  names of columns
        *values,
    ):
        place = row["process"], row["frame"]
        if place not in known:
            known[place] = _path(frames, *place)
        total = sums.setdefault((row["prefix"], known[place]), [0, 0.0])
        total[0] += row["n"]
        total[1] += row["s"]
    found = [Stack(*key, int(n), seconds) for key, (n, seconds) in sums.items()]
    return sorted(found, key=lambda s: (-s.n_samples, s.prefix or "", [f.text for f in s.frames]))


_Frames = dict[tuple[str, int | None], tuple[Function, int | None]]


def _frames(run: Run) -> _Frames:
    """Return function and calling frame of each frame."""
    return {
        (row["process"], row["frame"]): (
            Function(row["function"] or "?", row["module"], row["line"]),
            row["parent"],
        )
        for row in run.rows(
            "select process, frame, parent, function, module, line from stack_frames"
        )
    }


def _path(frames: _Frames, process: str, frame: int | None) -> tuple[Function, ...]:
    """Return the functions from the outermost to a frame; a damaged record may have circles."""
    path: list[Function] = []
    seen: set[int | None] = {None}
    while frame not in seen and (process, frame) in frames:
        seen.add(frame)
        function, frame = frames[process, frame]
        path.append(function)
    return tuple(reversed(path))
