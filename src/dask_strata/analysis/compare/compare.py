"""Comparison of runs: is it fair, what differs, and what of it is more than noise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dask_strata.analysis.compare.effects import Effect, measure_effects
from dask_strata.analysis.compare.fairness import Fairness, assess
from dask_strata.analysis.compare.gate import Judgement, Limit, Question, judge, parse_limit
from dask_strata.analysis.compare.runs import (
    ComparedRun,
    Group,
    group_by,
    make_groups,
    observe,
    runs_at,
)
from dask_strata.analysis.compare.sentences import fairness_sentence, makespan_sentence
from dask_strata.analysis.compare.split import Split, split_difference
from dask_strata.analysis.compare.variability import Variability, describe
from dask_strata.errors import UsageError
from dask_strata.run import Run
from dask_strata.run.table_view import needs

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

#: What stands for a run, or for the runs of a folder.
RunLike = Run | str | Path

#: Names of the groups if two runs or two lists of runs are compared.
_A, _B = "A", "B"


@dataclass(frozen=True)
class Contrast:
    """Two groups of runs, or two runs, compared.

    Attributes
    ----------
    first, second : Group
        The groups; ratios are those of the second to the first.
    effects : tuple of Effect
        How much each measure differs.
    split : Split
        The difference of the makespans by cause, prefix and occupant.
    sentence : str
        How much longer the second group takes, and for what.
    """

    first: Group
    second: Group
    effects: tuple[Effect, ...]
    split: Split
    sentence: str


@dataclass(frozen=True)
class Comparison:
    """A comparison of runs.

    Attributes
    ----------
    groups : tuple of Group
        The groups of runs.
    fairness : Fairness
        What differs between the runs, and which are spoiled.
    fair : str
        The same in one line.
    contrasts : tuple of Contrast
        Each other group against the first; empty for one group.
    variability : tuple of Variability
        The spread of each group of two runs or more.
    """

    groups: tuple[Group, ...]
    fairness: Fairness
    fair: str
    contrasts: tuple[Contrast, ...]
    variability: tuple[Variability, ...]

    def judge(self, limits: Limit | str | Sequence[Limit | str]) -> tuple[Judgement, ...]:
        """Return whether the groups exceed limits.

        Parameters
        ----------
        limits : Limit, str, or a sequence of these
            The limits, such as ``makespan > 1.1``.

        Raises
        ------
        UsageError
            A text is no limit, or there is no second group.
        """
        if not self.contrasts:
            raise UsageError(
                "A limit needs two groups of runs.",
                hint="dask-strata compare --group before RUN … --group after RUN …",
            )
        texts = [limits] if isinstance(limits, (str, Limit)) else limits
        parsed = [parse_limit(each) if isinstance(each, str) else each for each in texts]
        questions = []
        for each in self.contrasts:
            effects = {(effect.measure, effect.name): effect for effect in each.effects}
            questions += [
                Question(limit, each.first, each.second, effects.get((limit.measure, limit.name)))
                for limit in parsed
            ]
        return tuple(map(judge, questions))

    def to_arrow(self, table: str = "effects") -> pa.Table:
        """Return one part as a table.

        Parameters
        ----------
        table : str
            effects, parts, facts, prefixes, spoiled, spreads or explained.

        Raises
        ------
        UsageError
            There is no such table.
        """
        from dask_strata.analysis.compare.tables import table_of

        return table_of(self, table)

    def to_pandas(self, table: str = "effects") -> pd.DataFrame:
        """Return one part as a data frame; see `to_arrow`.

        Parameters
        ----------
        table : str
            As in `to_arrow`.

        Raises
        ------
        UsageError
            There is no such table.
        StrataError
            pandas is not installed.
        """
        with needs("pandas"):
            return self.to_arrow(table).to_pandas()


def compare(
    *runs: RunLike | Iterable[RunLike],
    groups: Mapping[str, RunLike | Iterable[RunLike]] | None = None,
    by: str | None = None,
    expect: str | Collection[str] = (),
    exclude_spoiled: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Compare runs; see `dask_strata.compare`, whose parameters and errors are the same.

    Parameters
    ----------
    *runs, groups, by, expect, exclude_spoiled
        As there.
    progress : callable
        Receives the name of each run before it is read.
    """
    lists = [each for each in runs if not isinstance(each, RunLike)]
    single = [each for each in runs if isinstance(each, RunLike)]
    if sum((bool(lists), bool(single), groups is not None)) != 1:
        raise UsageError("Give either runs, or lists of runs, or groups.", hint=_HINT)
    if by is not None and (groups is not None or lists):
        raise UsageError("Give either groups, or a fact that makes them.", hint=_HINT)
    expected = [expect] if isinstance(expect, str) else list(expect)
    named = groups if groups is not None else {_name(i): each for i, each in enumerate(lists)}
    places = [(str(name), _places(each)) for name, each in named.items()] or [("", iter(single))]
    observed = []
    for name, each in places:
        observed.append(
            (name, [observe(run, progress) for place in each for run in runs_at(place)])
        )
    if single:
        observed, declared = _divided(observed[0][1], by)
        expected += declared
    made = make_groups(observed, exclude_spoiled=exclude_spoiled)
    if sum(len(group.runs) + len(group.excluded) for group in made) == 1:
        raise UsageError("One run cannot be compared.", hint=_HINT)
    return compare_groups(made, expected)


def _places(given: object) -> Iterator[RunLike]:
    """Yield runs as they were given: one, or several."""
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes))
    for each in given if several else [given]:  # type: ignore[attr-defined]
        if not isinstance(each, RunLike):
            raise UsageError(f"A {type(each).__name__} is no run.", hint=_HINT)
        yield each


def _divided(
    runs: list[ComparedRun], by: str | None
) -> tuple[list[tuple[str, list[ComparedRun]]], list[str]]:
    """Return runs in groups, and the facts that make them.

    Two runs are compared with each other; more are one group, unless a fact divides them.
    """
    if by is not None:
        fact, groups = group_by(runs, by)
        return groups, [fact]
    if len(runs) == 2:  # noqa: PLR2004
        return [(_A, [runs[0]]), (_B, [runs[1]])], []
    return [("runs", runs)], []


def _name(i: int) -> str:
    return chr(ord("A") + i) if i < 26 else f"group {i + 1}"  # noqa: PLR2004


def compare_groups(groups: Sequence[Group], expect: Collection[str] = ()) -> Comparison:
    """Compare groups of runs that were read.

    Parameters
    ----------
    groups : sequence of Group
        The groups; the first one is the baseline.
    expect : collection of str
        Facts that are meant to differ.

    Raises
    ------
    UsageError
        No run has an expected fact.
    """
    fairness = assess(groups, expect)
    return Comparison(
        tuple(groups),
        fairness,
        fairness_sentence(fairness),
        tuple(_contrast(groups[0], group) for group in groups[1:]),
        tuple(describe(group) for group in groups if len(group.runs) > 1),
    )


def _contrast(first: Group, second: Group) -> Contrast:
    effects = measure_effects(first, second)
    split = split_difference(first, second)
    makespan = next(effect for effect in effects if effect.measure == "makespan")
    return Contrast(
        first, second, effects, split, makespan_sentence(first, second, makespan, split)
    )


_HINT = "Give two runs or more, or two lists of runs, or groups by name."
