"""A comparison in sentences: is it fair, what is slower, and where the time is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from dask_strata.analysis.compare.effects import Effect
from dask_strata.analysis.compare.fairness import Difference, Fairness, Spoiled
from dask_strata.analysis.compare.runs import UNKNOWN, Group
from dask_strata.analysis.compare.split import Part, Split
from dask_strata.analysis.compare.statistics import LEAST_RUNS
from dask_strata.analysis.words import count, duration, number, percent, size

#: Share of a difference below which a part is not in the sentence, and most parts in it.
_LEAST_PART = 0.05
_MOST_PARTS = 3

#: Most facts in the first line, and most characters of a value.
_MOST_FACTS = 6
_LONGEST = 40

#: Most values of a fact in one group.
_MOST_VALUES = 3

#: Least detectable ratios beyond which they are not shown: nothing is found, or nothing varies.
_LARGEST_RATIO = 10
_SMALLEST_RATIO = 1.005

#: Most prefixes of which the least detectable change is shown.
_MOST_PREFIXES = 5

#: What a run does during each cause of the critical path; {} is the prefix.
_DOING = {
    "compute": "in {}",
    "I/O": "opening files in {}",
    "transfer": "fetching the dependencies of {}",
    "waiting to fetch": "waiting to fetch the dependencies of {}",
    "deserialize": "unpacking {}",
    "spill": "writing results to disk or reading them, for {}",
    "waiting for a worker": "waiting for a free worker thread",
    "other clients": "waiting for threads that other clients used",
    "waiting for a resource": "waiting for a resource that {} needs",
    "paused worker": "on paused workers",
    "blocked event loop": "with a blocked event loop",
    "silent worker": "on workers without a heartbeat",
    "scheduler": "in the scheduler",
    "graph": "building and sending graphs",
    "scatter": "scattering data",
    "gather": "gathering results",
    "client": "until the client sent the next graph",
    "nothing submitted": "with nothing submitted",
    "not on record": "not on record",
}


def fairness_sentence(fairness: Fairness) -> str:
    """Return whether the comparison is fair, and if not, what differs, in one line.

    Parameters
    ----------
    fairness : Fairness
        What differs.
    """
    undeclared = fairness.undeclared
    spoiled = sum(not each.excluded for each in fairness.spoiled)
    excluded = len(fairness.spoiled) - spoiled
    texts = []
    if undeclared:
        shown = "; ".join(_difference(each) for each in undeclared[:_MOST_FACTS])
        rest = len(undeclared) - _MOST_FACTS
        more = f"; and {count(rest, 'more fact')}" if rest > 0 else ""
        texts.append(f"Not alike: {shown}{more}.")
    if spoiled:
        texts.append(f"{count(spoiled, 'spoiled run')}.")
    if not texts:
        texts.append(
            "Fair: nothing on record differs that was not declared, and no run is spoiled."
        )
    if excluded:
        texts.append(f"{count(excluded, 'spoiled run')} left out.")
    return " ".join(texts)


def spoiled_line(spoiled: Spoiled) -> str:
    """Return why a run is spoiled, in one line.

    Parameters
    ----------
    spoiled : Spoiled
        The run.
    """
    left_out = ", left out" if spoiled.excluded else ""
    return f"spoiled{left_out}: {spoiled.run}: {'; '.join(spoiled.reasons)}"


def _difference(difference: Difference) -> str:
    values = [value for each in difference.values for value in each]
    short = dict(zip(values, _cut(values), strict=True))
    texts = []
    for each in difference.values:
        shown = [short[value] for value in each[:_MOST_VALUES]]
        if len(each) > _MOST_VALUES:
            shown.append(f"{len(each) - _MOST_VALUES} others")
        texts.append(" or ".join(shown) or UNKNOWN)
    return f"{difference.name} {' → '.join(texts)}"


def _cut(texts: Sequence[str]) -> list[str]:
    """Return texts of at most so many characters, with the place where they begin to differ.

    >>> _cut(["a" * 50 + "1" * 50, "a" * 50 + "2"])
    ['…aaaaaaaa111111111111111111111111111111…', '…aaaaaaaa2']
    """
    if max(map(len, texts)) <= _LONGEST:
        return list(texts)
    columns = enumerate(zip(*texts, strict=False))
    alike = next((i for i, each in columns if len(set(each)) > 1), min(map(len, texts)))
    first = alike - 8 if alike > _LONGEST // 2 else 0
    return [_shortened(text[first:], "…" if first else "") for text in texts]


def _shortened(text: str, begin: str) -> str:
    most = _LONGEST - len(begin)
    return begin + (text if len(text) <= most else f"{text[: most - 1]}…")


def amount(value: float | None, unit: str) -> str:
    """Return an amount with its unit; a dash if it is unknown.

    Parameters
    ----------
    value : float or None
        The amount.
    unit : str
        seconds, bytes or tasks.

    Examples
    --------
    >>> amount(1.5, "seconds"), amount(2048, "bytes"), amount(3.0, "tasks")
    ('1.5 s', '2 KiB', '3')
    """
    if value is None:
        return "–"
    return {"seconds": duration, "bytes": size}.get(unit, number)(value)


def makespan_sentence(first: Group, second: Group, makespan: Effect, split: Split) -> str:
    """Return how much longer the second group takes, whether that is noise, and for what.

    Parameters
    ----------
    first, second : Group
        The groups.
    makespan : Effect
        The effect on the makespan.
    split : Split
        The parts of the difference.
    """
    seconds = split.difference_seconds
    if not seconds:
        return f"{second.name} takes as long as {first.name}."
    word = "longer" if seconds >= 0 else "less"
    ratio = "" if makespan.ratio is None else f" ({makespan.ratio:.2f}×{_interval(makespan)})"
    takes = f"{second.name} takes {duration(abs(seconds))} {word} than {first.name}{ratio}"
    parts = parts_sentence(split)
    return f"{takes}{': ' + parts if parts else ''}. {_noise(first, second, makespan)}"


def parts_sentence(split: Split) -> str:
    """Return the largest parts of a difference in one phrase; empty if there is none.

    Parameters
    ----------
    split : Split
        The parts.
    """
    total = split.difference_seconds
    merged = _merged(split.parts)
    alike = [part for part in merged if part.difference_seconds * total > 0]
    shown = [
        part
        for part in alike[:_MOST_PARTS]
        if abs(part.difference_seconds) >= _LEAST_PART * abs(total)
    ]
    texts = [f"{duration(abs(part.difference_seconds))} {doing(part)}" for part in shown]
    rest = total - sum(part.difference_seconds for part in shown)
    if shown and abs(rest) > _LEAST_PART * abs(total):
        against = f"but {duration(abs(rest))} {'longer' if rest > 0 else 'less'}"
        texts.append(f"{duration(abs(rest)) if rest * total > 0 else against} elsewhere")
    return ", ".join(texts)


def _merged(parts: Iterable[Part]) -> list[Part]:
    """Return parts of which those with the same text are one, the largest first."""
    merged: dict[str, Part] = {}
    for part in parts:
        text = doing(part)
        if (known := merged.get(text)) is None:
            merged[text] = part
        else:
            merged[text] = Part(
                known.cause,
                known.prefix,
                known.occupant,
                known.place,
                known.first_seconds + part.first_seconds,
                known.second_seconds + part.second_seconds,
            )
    return sorted(merged.values(), key=lambda part: -abs(part.difference_seconds))


def doing(part: Part) -> str:
    """Return what a run does in a part of its critical path.

    Parameters
    ----------
    part : Part
        The part.
    """
    tasks = "tasks of unknown prefix" if part.prefix is None else f"`{part.prefix}`"
    text = _DOING.get(part.cause, part.cause).format(tasks)
    if part.cause == "waiting for a worker" and part.occupant is not None:
        text += f" behind `{part.occupant}`"
    return text if part.place is None else f"{text} on {part.place}"


def _interval(effect: Effect) -> str:
    if effect.low is None or effect.high is None or effect.coverage is None:
        return ""
    return f", {percent(effect.coverage)} interval {effect.low:.2f}–{effect.high:.2f}"


def _noise(first: Group, second: Group, makespan: Effect) -> str:
    n, m = len(first.runs), len(second.runs)
    verdict = makespan.verdict
    if verdict == "unknown noise":
        return "With one run a side, noise is not known."
    if verdict in ("inside the spread", "outside the spread") and min(n, m) < LEAST_RUNS:
        place = "inside" if verdict.startswith("inside") else "outside"
        return (
            f"That is {place} the spread seen; {n} and {m} runs are too few for a test, which "
            f"takes {LEAST_RUNS} a side."
        )
    p = "" if makespan.p is None else f" (p = {makespan.p:.2g})"
    if makespan.is_real:
        return f"That is more than noise{p}."
    return f"That is within noise{p}; {not_seen(makespan, n, m)}."


def not_seen(effect: Effect, n: int, m: int) -> str:
    """Return which changes a comparison of so many runs does not find.

    Parameters
    ----------
    effect : Effect
        The effect of a measure.
    n, m : int
        Numbers of runs.
    """
    side = f"{n} a side" if n == m else f"{n} and {m} runs"
    if effect.detectable is None:
        return f"with {side}, it is not known which changes are not seen"
    return f"with {side}, {changes_not_seen(effect.detectable)}"


def changes_not_seen(detectable: float) -> str:
    """Return in words which changes are not found.

    Parameters
    ----------
    detectable : float
        The least ratio that is found.

    Examples
    --------
    >>> changes_not_seen(1.18)
    'changes under 18 % are not seen'
    """
    if math.isinf(detectable):
        return "no change of this measure alone is seen among so many"
    if detectable > _LARGEST_RATIO:
        return f"not even a change by a factor of {_LARGEST_RATIO} is seen"
    return f"changes under {percent(detectable - 1)} are not seen"


def prefixes_not_seen(first: Group, second: Group, effects: Iterable[Effect]) -> str:
    """Return which changes of the longest prefixes are not found; empty if all differ.

    Parameters
    ----------
    first, second : Group
        The groups.
    effects : iterable of Effect
        Their effects.
    """
    found = [e for e in effects if e.measure == "compute" and e.verdict == "within noise"]
    n, m = len(first.runs), len(second.runs)
    side = f"{n} a side" if n == m else f"{n} and {m} runs"
    if any(math.isinf(e.detectable or 0.0) for e in found):
        return f"With {side}, no change of compute of one prefix alone is more than noise."
    found = [e for e in found if _SMALLEST_RATIO <= (e.detectable or 0.0) <= _LARGEST_RATIO]
    found.sort(key=lambda e: -max(median or 0.0 for median in e.medians))
    if not found:
        return ""
    shown = ", ".join(
        f"{percent((e.detectable or 1.0) - 1)} of `{e.name}`" for e in found[:_MOST_PREFIXES]
    )
    return f"With {side}, changes of compute under {shown} are not seen."
