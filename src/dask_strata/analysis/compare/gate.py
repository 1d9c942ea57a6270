"""Limits on ratios, which a CI job checks: ``prefix read-parquet compute > 1.2``."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dask_strata.analysis.breakdown import KINDS
from dask_strata.analysis.compare.effects import OF_PREFIXES, OF_SPANS, VERDICTS, Effect
from dask_strata.analysis.compare.runs import ComparedRun, Group
from dask_strata.analysis.compare.sentences import amount, not_seen
from dask_strata.analysis.compare.statistics import LEAST_RUNS
from dask_strata.analysis.critical_path.walk import CAUSES
from dask_strata.analysis.diagnosis.registry import causes
from dask_strata.analysis.words import count
from dask_strata.errors import UsageError

#: Statuses of the process: the limit holds, is exceeded, or it is unclear.
HOLDS, EXCEEDED, UNCLEAR = 0, 1, 3

_LIMIT = re.compile(r"\s*(?P<what>.*\S)\s*>\s*(?P<ratio>[0-9]*\.?[0-9]+)\s*(?:×|x)?\s*")

_OF_PREFIXES = (*OF_PREFIXES, "tasks")

_EXAMPLES = (
    "makespan > 1.1, start-up > 2, prefix read-parquet compute > 1.2, cause transfer > 1.5, "
    "insight spill > 1.5, span load wall > 1.2"
)


@dataclass(frozen=True)
class Limit:
    """A limit on the ratio of a measure.

    Attributes
    ----------
    text : str
        As the user wrote it.
    measure, name : str
        The measure, as in `Effect`.
    ratio : float
        The largest ratio that is no failure.
    """

    text: str
    measure: str
    name: str
    ratio: float


@dataclass(frozen=True)
class Judgement:
    """A limit, and whether two groups exceed it.

    Attributes
    ----------
    limit : Limit
        The limit.
    first, second : str
        Names of the groups.
    status : int
        0: it holds; 1: it is exceeded; 3: it is unclear.
    evidence : str
        Why, in one sentence.
    """

    limit: Limit
    first: str
    second: str
    status: int
    evidence: str


def parse_limit(text: str) -> Limit:
    """Return the limit that a text states.

    Parameters
    ----------
    text : str
        What fails, such as ``makespan > 1.1``.

    Raises
    ------
    UsageError
        It is no limit, or on a cause or kind that does not exist.

    Examples
    --------
    >>> parse_limit("prefix load compute > 1.2")
    Limit(text='prefix load compute > 1.2', measure='compute', name='load', ratio=1.2)
    """
    found = _LIMIT.fullmatch(text)
    what = found["what"].split() if found is not None else []
    ratio = float(found["ratio"]) if found is not None else 0.0
    if ratio > 0 and what:
        kind, rest = what[0].rstrip(":"), " ".join(what[1:])
        if kind in ("makespan", "start-up") and not rest:
            return Limit(text, kind, "", ratio)
        if kind in _NAMED and rest:
            measure, names = _NAMED[kind]
            if names and rest not in names:
                raise UsageError(
                    f"There is no {kind} {rest}.", hint=f"Names: {', '.join(sorted(names))}"
                )
            return Limit(text, measure, rest, ratio)
        for measure in _OF_PREFIXES:
            if kind == "prefix" and rest.endswith(f" {measure}"):
                return Limit(text, measure, rest.removesuffix(measure).rstrip(), ratio)
        for measure in OF_SPANS:
            own = measure.removeprefix("span")
            if kind == "span" and rest.endswith(own):
                return Limit(text, measure, rest.removesuffix(own).rstrip(), ratio)
    raise UsageError(f"{text!r} is no limit.", hint=f"Examples: {_EXAMPLES}")


#: Words before a name: the measure, and the names if they are known before runs are read.
_NAMED: dict[str, tuple[str, Collection[str]]] = {
    "cause": ("critical path", CAUSES),
    "path": ("critical path", CAUSES),
    "insight": ("insight", ()),
    "worker-seconds": ("worker-seconds", KINDS),
    "threads": ("worker-seconds", KINDS),
}


@dataclass(frozen=True)
class Question:
    """A limit for two groups.

    Attributes
    ----------
    limit : Limit
        The limit.
    first, second : Group
        The groups.
    effect : Effect or None
        The effect on the measure; None if no run has this measure.
    """

    limit: Limit
    first: Group
    second: Group
    effect: Effect | None


def judge(question: Question) -> Judgement:
    """Return whether two groups exceed a limit.

    The question was asked before the runs were seen: its p is not adjusted for other measures.

    Parameters
    ----------
    question : Question
        The limit, and the groups.

    Raises
    ------
    UsageError
        The limit is on an insight of which no rule and no run has the name.
    """
    limit, effect = question.limit, question.effect
    if effect is not None and effect.p is not None:
        effect = effect.judged(effect.p, n_tests=1)
    what = _what(limit)
    if effect is None:
        status, text = _absent(limit, what)
    elif effect.verdict == "equal":
        status = HOLDS if limit.ratio >= 1 else EXCEEDED
        text = f"{what}: the same in all runs"
    elif (ratio := _ratio(effect)) is None:
        status, text = UNCLEAR, f"{what}: {VERDICTS[effect.verdict]}"
    else:
        medians = " → ".join(amount(median, effect.unit) for median in effect.medians)
        interval = ""
        if effect.low is not None and effect.high is not None:
            interval = f", interval {effect.low:.2f}–{effect.high:.2f}"
        times = "" if math.isinf(ratio) else f" ({ratio:.2f}×{interval})"
        unfinished = [
            run for run in (*question.first.runs, *question.second.runs) if run.unfinished
        ]
        if unfinished:
            status, why = UNCLEAR, f"; {_unfinished(unfinished)}"
        else:
            status, why = (_untested if effect.p is None else _tested)(question, effect, ratio)
        text = f"{what}: {medians}{times}{why}"
    names = question.first.name, question.second.name
    return Judgement(limit, *names, status, f"{text}.")


def _unfinished(runs: Sequence[ComparedRun]) -> str:
    first = f"{runs[0].name} {runs[0].unfinished}"
    if len(runs) == 1:
        return f"{first}: leave it out (--exclude-spoiled)"
    more = count(len(runs) - 1, "more run")
    return f"{first}, {more} did not finish: leave them out (--exclude-spoiled)"


def _ratio(effect: Effect) -> float | None:
    """Return the ratio of the medians; infinite if there was nothing before."""
    first, second = effect.medians
    return math.inf if first == 0 and second else effect.ratio


def _absent(limit: Limit, what: str) -> tuple[int, str]:
    """Return status and reason for a measure that no run has."""
    if limit.measure == "insight" and limit.name not in causes():
        raise UsageError(
            f"There is no insight {limit.name}.", hint=f"Insights: {', '.join(sorted(causes()))}"
        )
    if limit.measure in ("insight", "critical path"):
        return (HOLDS if limit.ratio >= 1 else EXCEEDED), f"{what}: no run has it"
    return UNCLEAR, f"{what} is on record of no run"


def _untested(question: Question, effect: Effect, ratio: float) -> tuple[int, str]:
    """Return status and reason for groups that are too small for a test."""
    n, m = len(question.first.runs), len(question.second.runs)
    if effect.verdict == "unknown noise":
        return UNCLEAR, "; with one run a side, noise is not known"
    is_over = effect.verdict == "outside the spread" and ratio > question.limit.ratio
    if is_over or question.limit.ratio < 1:
        few = f"{n} and {m} runs are too few for a test: record {LEAST_RUNS} a side"
        return UNCLEAR, f", {effect.verdict} seen; {few}"
    if effect.verdict in ("outside the spread", "inside the spread"):
        return HOLDS, f", {effect.verdict} seen"
    return UNCLEAR, f"; {VERDICTS[effect.verdict]}"


def _tested(question: Question, effect: Effect, ratio: float) -> tuple[int, str]:
    """Return status and reason for groups that were tested."""
    limit = question.limit.ratio
    n, m = len(question.first.runs), len(question.second.runs)
    p = f"(p = {effect.adjusted_p:.2g})"
    if effect.is_real:
        # With a limit below 1 the second group must have less.
        is_over = ratio > limit and (limit < 1 or effect.verdict == "more")
        return (EXCEEDED if is_over else HOLDS), f", more than noise {p}"
    least = max(limit, 1 / limit)
    if effect.detectable is not None and effect.detectable <= least:
        return (HOLDS if limit >= 1 else EXCEEDED), f", within noise {p}"
    is_over = ratio > limit or limit < 1
    return (UNCLEAR if is_over else HOLDS), f", within noise {p}; {not_seen(effect, n, m)}"


def _what(limit: Limit) -> str:
    if limit.name and limit.measure in _OF_PREFIXES:
        return f"{limit.measure} of {limit.name}"
    return f"{limit.measure} {limit.name}".strip()
