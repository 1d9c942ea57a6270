"""Sums of samples by execution, what it waited for, and the user's line."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from dask_strata.recorder.sampling.frames import Place
from dask_strata.recorder.sampling.places import place_columns
from dask_strata.recorder.sampling.system_calls import GIL, OTHER

#: Bound on the difference between measured and sampled CPU time, in nanoseconds.
_MOST_CREDIT = 500_000_000

#: Age at which sums of an execution under way become rows, in nanoseconds: a process that is killed
#: loses younger ones.
_MAX_AGE = 2_000_000_000


class Sampled(NamedTuple):
    """An execution that is sampled.

    Attributes
    ----------
    number : int
        Number of the execution in this process.
    key : object
        Key of the task, as Dask has it.
    run_id : int or None
        Dask's own number of the attempt.
    thread : int
        Identity of the thread.
    start_ns : int or None
        Wall clock at its start, in nanoseconds since the epoch.
    stop_ns : int or None
        The same at its end; None while it is under way.
    """

    number: int
    key: Any
    run_id: int | None
    thread: int
    start_ns: int | None
    stop_ns: int | None = None


class Sample(NamedTuple):
    """A part of the time between two looks at a thread.

    Attributes
    ----------
    waiting : str or None
        What the thread waited for, see `kernel.Reading`.
    ns : int
        Length of the time.
    cpu_ns, delay_ns : int or None
        CPU time of the thread and its delay meanwhile.
    """

    waiting: str | None
    ns: int
    cpu_ns: int | None
    delay_ns: int | None


class Credit:
    """Decides whether a thread that waits for the GIL at a look waited for it before, too.

    The looking thread holds the GIL. So a thread that runs Python at a random moment is always
    seen to wait for the GIL. Over several looks, the CPU time of the thread shows how many of them
    found it running.
    """

    def __init__(self) -> None:
        self._ns = 0

    def settle(self, sample: Sample, *, contended: bool = True) -> Sample:
        """Return the sample, with `waiting` as it was before the look.

        Parameters
        ----------
        sample : Sample
            The sample as seen.
        contended : bool, optional
            Whether the looking thread had to wait for the GIL itself. If not, no thread held it
            before the look: a thread without CPU was in short waits for something else.

        Examples
        --------
        >>> credit = Credit()
        >>> half = Sample("gil", 80, 40, 0)
        >>> [credit.settle(half).waiting for _ in range(4)]
        [None, 'gil', None, 'gil']
        >>> Credit().settle(Sample("gil", 80, 10, 0), contended=False).waiting
        'other'
        """
        if sample.cpu_ns is None:
            return sample
        credit = self._ns + sample.cpu_ns + (sample.delay_ns or 0)
        waiting = sample.waiting
        if waiting == GIL and credit * 2 >= sample.ns:
            waiting = None
        elif waiting is None and credit < -_MOST_CREDIT:
            waiting = GIL
        if waiting == GIL and not contended:
            waiting = OTHER
        if waiting is None:
            credit -= sample.ns
        self._ns = max(-_MOST_CREDIT - sample.ns, min(credit, _MOST_CREDIT))
        return sample._replace(waiting=waiting)


def frozen_parts(sample: Sample) -> Iterator[Sample]:
    """Yield the parts of a time in which the looking thread waited for the GIL.

    Parameters
    ----------
    sample : Sample
        The sample as seen at its end. A thread that runs then and had no CPU waited for the GIL.

    Examples
    --------
    >>> [(part.waiting, part.ns) for part in frozen_parts(Sample(None, 1000, 300, 100))]
    [(None, 400), ('gil', 600)]
    """
    if sample.cpu_ns is None:
        yield sample
        return
    ran = min(sample.ns, sample.cpu_ns + (sample.delay_ns or 0))
    if ran:
        yield Sample(None, ran, sample.cpu_ns, sample.delay_ns)
    if ran < sample.ns:
        yield Sample(sample.waiting or GIL, sample.ns - ran, 0, 0)


@dataclass(slots=True)
class _Sum:
    first: int
    last: int
    n: int = 0
    ns: int = 0
    cpu_ns: int | None = None
    delay_ns: int | None = None


class Sums:
    """Sums of the samples of executions, until these end."""

    def __init__(self) -> None:
        #: By execution, reason, place, and time of a sample that is a row of its own or 0.
        self._sums: dict[int, tuple[Sampled, dict[tuple[str | None, Place, int], _Sum]]] = {}

    def add(
        self, execution: Sampled, place: Place, sample: Sample, now_ns: int, *, apart: bool = False
    ) -> None:
        """Add a sample.

        Parameters
        ----------
        execution : Sampled
            The execution.
        place : Place
            The user's line.
        sample : Sample
            The sample.
        now_ns : int
            Wall clock in nanoseconds since the epoch.
        apart : bool, optional
            Whether it becomes a row of its own, so that its time is known exactly.
        """
        _, sums = self._sums.setdefault(execution.number, (execution, {}))
        name = sample.waiting, place, now_ns if apart else 0
        found = sums.get(name)
        if found is None:
            found = sums[name] = _Sum(now_ns, now_ns)
        found.last = now_ns
        found.n += 1
        found.ns += sample.ns
        found.cpu_ns = _added(found.cpu_ns, sample.cpu_ns)
        found.delay_ns = _added(found.delay_ns, sample.delay_ns)

    def take(self, under_way: Collection[int], now_ns: int) -> list[tuple[Sampled, dict[str, Any]]]:
        """Return rows of the executions that have ended, and of those with old sums.

        Parameters
        ----------
        under_way : collection of int
            Numbers of the executions under way.
        now_ns : int
            Wall clock in nanoseconds since the epoch.
        """
        found = []
        for number, (execution, sums) in list(self._sums.items()):
            old = any(now_ns - each.first >= _MAX_AGE for each in sums.values())
            if number not in under_way or old:
                del self._sums[number]
                found += [(execution, _row(*name[:2], each)) for name, each in sums.items()]
        return found


def _added(total: int | None, more: int | None) -> int | None:
    return total if more is None else more + (total or 0)


def _row(waiting: str | None, place: Place, found: _Sum) -> dict[str, Any]:
    return {
        "waiting": waiting,
        **place_columns(place),
        "n_samples": found.n,
        "seconds": found.ns / 1e9,
        "cpu_seconds": None if found.cpu_ns is None else found.cpu_ns / 1e9,
        "delay_seconds": None if found.delay_ns is None else found.delay_ns / 1e9,
        "first": found.first,
        "last": found.last,
    }
