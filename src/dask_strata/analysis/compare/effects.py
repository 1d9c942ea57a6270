"""How much each measure differs between two groups of runs, and whether that is more than noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import median

from dask_strata.analysis.compare.runs import ComparedRun, Group
from dask_strata.analysis.compare.statistics import (
    LEAST_RUNS,
    LEVEL,
    adjusted,
    least_detectable,
    p_value,
    ratio_interval,
)

#: Kinds of measures: the unit of their values, and whether a run without one had none of it. A run
#: without a prefix had none of its compute, transfers, CPU time and bytes.
MEASURES = {
    "makespan": ("seconds", False),
    "start-up": ("seconds", False),
    "critical path": ("seconds", True),
    "insight": ("seconds", True),
    "worker-seconds": ("seconds", False),
    "compute": ("seconds", True),
    "compute per task": ("seconds", False),
    "transfer": ("seconds", True),
    "cpu": ("seconds", True),
    "read": ("bytes", True),
    "tasks": ("tasks", True),
    "span compute": ("seconds", True),
    "span wall": ("seconds", False),
}

#: Kinds of measures of a prefix.
OF_PREFIXES = ("compute", "compute per task", "transfer", "cpu", "read")

#: Kinds of measures of a span with the spans within it: time in functions, and from its first
#: attempt to its last.
OF_SPANS = ("span compute", "span wall")

#: Verdicts of an effect, and their meanings.
VERDICTS = {
    "more": "more in the second group, and more than noise",
    "less": "less in the second group, and more than noise",
    "within noise": "no difference that is more than noise",
    "outside the spread": "each run of one group has more than each of the other, and the runs are "
    "too few, or the measures too many, to exclude chance",
    "inside the spread": "the values of the groups overlap, and the runs are too few for a test",
    "unknown noise": "one run a side: noise is not known",
    "equal": "the same value in all runs",
    "only in one": "only the runs of one group have tasks of this prefix or span",
    "unknown": "some runs have no value on record",
}


@dataclass(frozen=True)
class Effect:
    """One measure of two groups of runs.

    Attributes
    ----------
    measure : str
        Its kind, see `MEASURES`.
    name : str
        The cause, kind or prefix that it is about; empty for those of the whole run.
    unit : str
        seconds, bytes or tasks.
    first, second : tuple of float or None
        The value of each run of the groups, in the order of the runs; None if not on record.
    medians : pair of float or None
        Medians of the groups.
    difference : float or None
        The second median less the first.
    ratio : float or None
        The second median by the first; None if the first is 0.
    low, high, coverage : float or None
        Interval of the ratio, from 4 runs a side, and how often such intervals contain the truth.
    p, adjusted_p : float or None
        Mann and Whitney's p from 4 runs a side, and the one adjusted for the number of measures of
        this kind (Benjamini and Hochberg).
    detectable : float or None
        Ratio that four of five such comparisons would find; infinite if none would.
    verdict : str
        See `VERDICTS`.
    """

    measure: str
    name: str
    unit: str
    first: tuple[float | None, ...]
    second: tuple[float | None, ...]
    medians: tuple[float | None, float | None]
    difference: float | None
    ratio: float | None
    low: float | None = None
    high: float | None = None
    coverage: float | None = None
    p: float | None = None
    adjusted_p: float | None = None
    detectable: float | None = None
    verdict: str = "unknown"

    @property
    def known(self) -> tuple[list[float], list[float]]:
        """The values of each group that are on record."""
        return _known(self.first), _known(self.second)

    def judged(self, p: float, n_tests: int) -> Effect:
        """Return the effect with the verdict of a test.

        Parameters
        ----------
        p : float
            The adjusted p.
        n_tests : int
            Number of tests for which it was adjusted.
        """
        one, other = self.known
        return replace(
            self,
            adjusted_p=p,
            verdict=_verdict(one, other, p),
            detectable=least_detectable(one, other, n_tests),
        )

    @property
    def is_real(self) -> bool:
        """Whether the groups differ by more than noise."""
        return self.verdict in ("more", "less")


def measure_effects(first: Group, second: Group) -> tuple[Effect, ...]:
    """Return the effects of all measures, by kind, the largest differences of each kind first.

    Parameters
    ----------
    first, second : Group
        The groups.
    """
    sides = [[values_of(run) for run in group.runs] for group in (first, second)]
    names = {name: None for side in sides for run in side for name in run}
    effects = [
        _effect(
            *name,
            *(tuple(run.get(name, _absent(name[0])) for run in side) for side in sides),
            is_in_both=all(any(_task_count(name) in run for run in side) for side in sides),
        )
        for name in names
    ]
    order = list(MEASURES)
    effects.sort(key=lambda e: (order.index(e.measure), -abs(e.difference or 0.0), e.name))
    return tuple(
        effect
        for _, family in groupby(effects, key=lambda e: e.measure)
        for effect in _judged(list(family))
    )


def _task_count(name: tuple[str, str]) -> tuple[str, str]:
    """Return a measure that runs with tasks of the same prefix or span have."""
    return name if name[0] in OF_SPANS else ("tasks", name[1])


def values_of(run: ComparedRun) -> dict[tuple[str, str], float | None]:
    """Return the value of each measure of a run, by its kind and name.

    Parameters
    ----------
    run : ComparedRun
        The run.
    """
    return dict(_values(run))


def _values(run: ComparedRun) -> Iterator[tuple[tuple[str, str], float | None]]:
    yield ("makespan", ""), run.makespan_seconds
    yield ("start-up", ""), run.values.startup_seconds
    causes: dict[str, int] = {}
    for part in run.values.path:
        causes[part.cause] = causes.get(part.cause, 0) + part.nanoseconds
    for cause, nanoseconds in causes.items():
        yield ("critical path", cause), nanoseconds / 1e9
    costs: dict[str, float | None] = {}
    for insight in run.summary.insights:
        known = costs.get(insight.cause, 0.0)
        unknown = known is None or insight.seconds is None
        costs[insight.cause] = None if unknown else known + insight.seconds  # type: ignore[operator]
    for cause, seconds in costs.items():
        yield ("insight", cause), seconds
    for kind, kind_seconds in run.summary.breakdown.seconds.items():
        yield ("worker-seconds", kind), kind_seconds
    for prefix, used in run.values.prefixes.items():
        compute = used.compute_seconds
        yield ("compute", prefix), compute
        per_task = compute / used.attempts if compute is not None and used.attempts else None
        yield ("compute per task", prefix), per_task
        yield ("transfer", prefix), used.transfer_seconds
        yield ("cpu", prefix), used.cpu_seconds
        yield ("read", prefix), used.read_bytes
        yield ("tasks", prefix), float(used.tasks)
    for span in run.summary.spans:
        yield ("span compute", span.name), span.compute_seconds
        yield ("span wall", span.name), span.wall_seconds


def _absent(measure: str) -> float | None:
    """Return the value of a run that does not have a measure."""
    return 0.0 if MEASURES[measure][1] else None


def _effect(
    measure: str,
    name: str,
    first: tuple[float | None, ...],
    second: tuple[float | None, ...],
    *,
    is_in_both: bool,
) -> Effect:
    one, other = _known(first), _known(second)
    a, b = (median(side) if side else None for side in (one, other))
    effect = Effect(
        measure,
        name,
        MEASURES[measure][0],
        first,
        second,
        (a, b),
        None if a is None or b is None else b - a,
        None if a is None or b is None or not a else b / a,
    )
    if measure in (*OF_PREFIXES, *OF_SPANS) and not is_in_both:
        return replace(effect, verdict="only in one")
    if None in first or None in second:
        return effect
    if len({*one, *other}) == 1:
        return replace(effect, verdict="equal")
    if min(len(one), len(other)) >= LEAST_RUNS:
        low, high, coverage = ratio_interval(one, other) or (None, None, None)
        return replace(effect, p=p_value(one, other), low=low, high=high, coverage=coverage)
    if max(len(one), len(other)) == 1:
        return replace(effect, verdict="unknown noise")
    apart = max(one) < min(other) or max(other) < min(one)
    return replace(effect, verdict="outside the spread" if apart else "inside the spread")


def _judged(family: list[Effect]) -> Iterator[Effect]:
    """Yield the effects of one kind of measures, judged together."""
    n_tests = sum(effect.p is not None for effect in family)
    for effect, p in zip(family, adjusted([e.p for e in family]), strict=True):
        if effect.p is None or p is None:
            yield effect
            continue
        yield effect.judged(p, n_tests)


def _verdict(one: Sequence[float], other: Sequence[float], p: float) -> str:
    """Return the verdict of a test, see `VERDICTS`."""
    if p <= LEVEL:
        return "more" if _is_more(one, other) else "less"
    apart = max(one) < min(other) or max(other) < min(one)
    return "outside the spread" if apart else "within noise"


def _known(values: tuple[float | None, ...]) -> list[float]:
    return [value for value in values if value is not None]


def _is_more(one: Sequence[float], other: Sequence[float]) -> bool:
    return sum((b > a) - (b < a) for a in one for b in other) > 0
