"""Samples of the threads that ran tasks: what they waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dask_strata.run import Run


class Runner(NamedTuple):
    """The execution that a segment of the path waited for.

    Attributes
    ----------
    attempt : int
        Number of the attempt.
    key, prefix, worker
        Of its task.
    """

    attempt: int
    key: str | None
    prefix: str | None
    worker: str | None


class Waited(NamedTuple):
    """Sampled seconds of an attempt or a prefix at one place.

    `waiting` is None while the thread ran or could run; then `delay_seconds` of them it waited for
    a CPU.
    """

    waiting: str | None
    file: str | None
    line: int | None
    function: str | None
    calls: str | None
    seconds: float
    cpu_seconds: float
    delay_seconds: float
    n_samples: int


#: Values of `Waited.waiting` that are no wait, or that do not show which.
_NO_WAITS = (None, "unknown")

#: Least samples of a wait at a line, and their least share of the time at the line.
_FEW_SAMPLES = 2
_SHARE_AT_LINE = 0.2

#: Sampled seconds from which the samples of an attempt alone are used: a dozen samples.
_ENOUGH_SECONDS = 1.0


class Samples:
    """Samples of the threads that ran tasks.

    Parameters
    ----------
    run : Run
        The run.
    """

    def __init__(self, run: Run) -> None:
        self._by_attempt: dict[int, list[Waited]] = {}
        self._by_prefix: dict[str, list[Waited]] = {}
        sums: dict[tuple[Any, ...], list[float]] = {}
        for row in run.rows("""
            select a.attempt, coalesce(a.prefix, '(unknown)') as prefix, s.waiting, s.file, s.line,
                   s.function, s.calls, coalesce(sum(s.seconds), 0) as seconds,
                   coalesce(sum(s.cpu_seconds), 0) as cpu_seconds,
                   coalesce(sum(s.delay_seconds), 0) as delay_seconds,
                   coalesce(sum(s.n_samples), 0)::double as n_samples
            from task_samples s
            join attempts a on a._key = s._key and a.worker = s.worker and a.run_id = s.run_id
            group by all order by all
        """):
            attempt, prefix, *place = list(row.values())[:7]
            amounts = list(row.values())[7:]
            self._by_attempt.setdefault(attempt, []).append(Waited(*place, *amounts))
            total = sums.setdefault((prefix, *place), [0.0, 0.0, 0.0, 0])
            for i, amount in enumerate(amounts):
                total[i] += amount
        for (prefix, *place), amounts in sums.items():
            self._by_prefix.setdefault(prefix, []).append(Waited(*place, *amounts))

    def __bool__(self) -> bool:
        return bool(self._by_prefix)

    def of(self, runner: Runner) -> list[Waited]:
        """Return the samples of an execution, or those of its prefix if it has too few.

        Parameters
        ----------
        runner : Runner
            The execution.
        """
        own = self._by_attempt.get(runner.attempt, [])
        if sum(w.seconds for w in own) >= _ENOUGH_SECONDS:
            return own
        return self._by_prefix.get(runner.prefix or "", own)

    def share(self, runner: Runner, chosen: Callable[[Waited], bool]) -> float:
        """Return the share of an execution in which its thread waited for something, 0 to 1.

        A thread is blocked in the time in which it neither ran nor was ready to run. Samples show
        what for: a short wait may be over when the look has the interpreter's lock, so that they
        are too few, and their proportions count.

        Parameters
        ----------
        runner : Runner
            The execution.
        chosen : callable
            Whether a row of samples is such a wait.
        """
        rows = self.of(runner)
        total = sum(w.seconds for w in rows)
        waits = sum(w.seconds for w in rows if w.waiting not in _NO_WAITS)
        if not total or not waits:
            return 0.0
        used = sum(w.cpu_seconds + w.delay_seconds for w in rows)
        blocked = min(max(total - used, 0.0), total)
        if not any(w.cpu_seconds for w in rows):  # the kernel reports no times
            blocked = waits
        return blocked / total * sum(w.seconds for w in rows if chosen(w)) / waits

    def delay_share(self, runner: Runner) -> float:
        """Return the share of an execution in which its thread was ready and had no CPU, 0 to 1."""
        rows = self.of(runner)
        total = sum(w.seconds for w in rows)
        return min(sum(w.delay_seconds for w in rows) / total, 1.0) if total else 0.0

    def time_share(self, runner: Runner, chosen: Callable[[Waited], bool]) -> float:
        """Return the share of an execution at some places, 0 to 1, whether it ran or waited.

        Parameters
        ----------
        runner : Runner
            The execution.
        chosen : callable
            Whether a row of samples is at such a place.
        """
        rows = self.of(runner)
        total = sum(w.seconds for w in rows)
        return min(sum(w.seconds for w in rows if chosen(w)) / total, 1.0) if total else 0.0

    def place_share(self, runner: Runner, chosen: Callable[[Waited], bool]) -> float:
        """Return the share of an execution at lines that wait for something again and again.

        Parameters
        ----------
        runner : Runner
            The execution.
        chosen : callable
            Whether a row of samples is such a wait; waits are at least a fifth of the time at their
            line.
        """
        rows = self.of(runner)
        total = sum(w.seconds for w in rows)
        at: dict[tuple[Any, ...], list[float]] = {}
        for w in rows:
            sums = at.setdefault(w[1:5], [0.0, 0.0, 0])
            sums[0] += w.seconds
            if chosen(w):
                sums[1] += w.seconds
                sums[2] += w.n_samples
        found = (
            seconds
            for seconds, waits, n in at.values()
            if n >= _FEW_SAMPLES and waits >= _SHARE_AT_LINE * seconds
        )
        return min(sum(found) / total, 1.0) if total else 0.0

    def main(self, runners: Iterable[Runner], chosen: Callable[[Waited], bool]) -> Waited | None:
        """Return the place with most of the chosen seconds among some executions."""
        sums: dict[tuple[Any, ...], float] = {}
        rows: dict[tuple[Any, ...], Waited] = {}
        for runner in set(runners):
            for waited in self.of(runner):
                if chosen(waited):
                    place = waited[:5]
                    sums[place] = sums.get(place, 0.0) + waited.seconds
                    rows[place] = waited
        if not sums:
            return None
        best = max(sums, key=lambda place: sums[place])
        return rows[best]._replace(seconds=sums[best])
