"""The difference of two makespans, split by the parts of the critical paths; they sum to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from dask_strata.analysis.compare.runs import ComparedRun, Group

#: Share of the time that is on one host or worker, from which it is named.
_ON_ONE = 0.8

#: How much slower (or faster) than on others tasks became on a host or worker, to name it.
_SLOWER_THERE = 1.2


@dataclass(frozen=True)
class Part:
    """A part of the difference: one cause, of one prefix, with one occupant.

    Attributes
    ----------
    cause : str
        Cause on the critical path, see `CAUSES`.
    prefix : str or None
        Prefix of the tasks that the rest of the run waited for.
    occupant : str or None
        Prefix of the tasks that held what was waited for.
    place : str or None
        Host or worker on which the difference is, with its kind; None if it is on no single one.
    first_seconds, second_seconds : float
        Time of the critical path in each group.
    """

    cause: str
    prefix: str | None
    occupant: str | None
    place: str | None
    first_seconds: float
    second_seconds: float

    @property
    def difference_seconds(self) -> float:
        """How much longer the second group takes for it."""
        return self.second_seconds - self.first_seconds


@dataclass(frozen=True)
class Split:
    """The difference of the median makespans.

    Attributes
    ----------
    first, second : tuple of str
        Names of the one or two runs of each group with the median makespan. For two runs, each
        time is the mean of theirs.
    parts : tuple of Part
        The parts, the largest first, which sum to the difference.
    causes : dict of str to float
        Sums of the parts by cause, the largest first.
    difference_seconds : float
        The second median makespan less the first.
    """

    first: tuple[str, ...]
    second: tuple[str, ...]
    parts: tuple[Part, ...]
    causes: dict[str, float]
    difference_seconds: float


_Name = tuple[str, str | None, str | None]
_Place = tuple[str | None, str | None]


def split_difference(first: Group, second: Group) -> Split:
    """Return the difference of the makespans of two groups by cause, prefix and occupant.

    Parameters
    ----------
    first, second : Group
        The groups.
    """
    one, other = (_sums(group.middle) for group in (first, second))
    parts = [
        Part(
            *name,
            _place(name, one.get(name, {}), other.get(name, {}), first.middle, second.middle),
            sum(one.get(name, {}).values()) / 1e9,
            sum(other.get(name, {}).values()) / 1e9,
        )
        for name in {**one, **other}
    ]
    parts.sort(key=lambda p: (-abs(p.difference_seconds), p.cause, p.prefix or ""))
    causes: Counter[str] = Counter()
    for part in parts:
        causes[part.cause] += part.difference_seconds  # type: ignore[assignment]
    total = sum(part.difference_seconds for part in parts)
    return Split(
        tuple(run.name for run in first.middle),
        tuple(run.name for run in second.middle),
        tuple(parts),
        dict(sorted(causes.items(), key=lambda item: -abs(item[1]))),
        total,
    )


def _sums(runs: tuple[ComparedRun, ...]) -> dict[_Name, dict[_Place, float]]:
    """Return nanoseconds by cause, prefix and occupant, and by host and worker: means of runs."""
    sums: dict[_Name, dict[_Place, float]] = {}
    for run in runs:
        for part in run.values.path:
            # A task that runs is its own occupant.
            occupant = None if part.occupant == part.prefix else part.occupant
            if part.cause == "waiting for a worker":
                occupant = part.occupant
            of_name = sums.setdefault((part.cause, part.prefix, occupant), {})
            place = (part.host, part.worker)
            of_name[place] = of_name.get(place, 0.0) + part.nanoseconds / len(runs)
    return sums


def _place(
    name: _Name,
    first: dict[_Place, float],
    second: dict[_Place, float],
    runs: tuple[ComparedRun, ...],
    others: tuple[ComparedRun, ...],
) -> str | None:
    """Return the host or worker on which alone the tasks of a prefix became slower, or faster."""
    cause, prefix, occupant = name
    # Of a wait for a thread, the tasks that had it may have become slower.
    prefix = occupant if cause == "waiting for a worker" else prefix
    if cause not in ("compute", "I/O", "waiting for a worker") or prefix is None:
        return None
    whole = sum(second.values()) - sum(first.values())
    for kind, index in (("host", 0), ("worker", 1)):
        sums: Counter[str | None] = Counter()
        for place, nanoseconds in (second if whole > 0 else first).items():
            sums[place[index]] += nanoseconds  # type: ignore[assignment]
        for where, amount in sums.items():
            if where is not None and amount >= _ON_ONE * sum(sums.values()):
                ratio = _change_there(prefix, where, index, runs, others)
                if ratio is not None and (ratio if whole > 0 else 1 / ratio) >= _SLOWER_THERE:
                    return f"{kind} {where}"
    return None


def _change_there(
    prefix: str,
    where: str,
    index: int,
    runs: Iterable[ComparedRun],
    others: Iterable[ComparedRun],
) -> float | None:
    """Return how much slower tasks became on one host or worker than on the others, as a ratio."""
    here, elsewhere = [], []
    for side in (runs, others):
        n, seconds = [0, 0], [0.0, 0.0]
        for run in side:
            for place in run.values.places:
                if place.prefix == prefix:
                    there = (place.host, place.worker)[index] == where
                    n[there] += place.n
                    seconds[there] += place.seconds
        here.append(seconds[1] / n[1] if n[1] else None)
        elsewhere.append(seconds[0] / n[0] if n[0] else None)
    if None in elsewhere or here[1] is None:
        return None
    before, after = elsewhere
    # A host that only the second group has is compared with the others of the first one.
    base = here[0] if here[0] is not None else before
    return (here[1] / base) / (after / before)  # type: ignore[operator]
