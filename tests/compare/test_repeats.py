"""Real repeats differ in nothing, and planted changes are found."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from dask_strata.analysis.compare.compare import Contrast, compare_groups
from dask_strata.analysis.compare.effects import OF_PREFIXES, Effect, measure_effects
from dask_strata.analysis.compare.runs import ComparedRun, Group
from dask_strata.analysis.compare.sentences import prefixes_not_seen
from dask_strata.analysis.compare.split import split_difference
from tests.support.repeats import WORKLOADS, repeats, synthetic


def effect(effects: tuple[Effect, ...], measure: str, name: str = "") -> Effect:
    return next(e for e in effects if (e.measure, e.name) == (measure, name))


def contrast(first: Group, second: Group) -> Contrast:
    [found] = compare_groups([first, second]).contrasts
    return found


def halves(runs: tuple[ComparedRun, ...], seed: int) -> tuple[Group, Group]:
    order = np.random.default_rng(seed).permutation(len(runs))
    middle = len(runs) // 2
    return (
        Group("one", tuple(runs[i] for i in order[:middle])),
        Group("other", tuple(runs[i] for i in order[middle:])),
    )


@pytest.mark.parametrize("workload", WORKLOADS)
def test_random_halves_of_real_repeats_are_alike(workload: str) -> None:
    """Over 200 splits, at most 5 % of the comparisons of prefixes show a difference."""
    differ = compared = 0
    for seed in range(200):
        for found in measure_effects(*halves(repeats(workload), seed)):
            if found.measure in OF_PREFIXES:
                compared += found.p is not None
                differ += found.is_real
    assert compared > 200 * len(repeats(workload)[0].values.prefixes)
    assert differ <= 0.05 * compared


@pytest.mark.parametrize("workload", WORKLOADS)
def test_all_halves_of_real_repeats_are_alike(workload: str) -> None:
    """Over all 252 splits, at most 5 % show a difference, for each measure of each kind."""
    runs = repeats(workload)
    differ: Counter[tuple[str, str]] = Counter()
    compared: Counter[tuple[str, str]] = Counter()
    for chosen in combinations(range(len(runs)), len(runs) // 2):
        one = Group("one", tuple(runs[i] for i in chosen))
        other = Group("other", tuple(run for i, run in enumerate(runs) if i not in chosen))
        for found in measure_effects(one, other):
            compared[found.measure, found.name] += found.p is not None
            differ[found.measure, found.name] += found.is_real
    assert compared["makespan", ""] == 252
    assert {"start-up", "critical path", "worker-seconds", *OF_PREFIXES} <= {m for m, _ in compared}
    for measure, n in compared.items():
        assert differ[measure] <= 0.05 * n, measure


def test_random_halves_of_groups_without_corrections_for_few_runs_are_alike() -> None:
    """With 8 a side, so few as one of many measures can differ."""
    differ = compared = 0
    for seed in range(200):
        group = synthetic("all", np.random.default_rng(seed), n=16)
        for found in measure_effects(*halves(group.runs, seed)):
            if found.measure == "compute":
                compared += found.p is not None
                differ += found.is_real
    assert differ <= 0.05 * compared


@pytest.mark.parametrize("prefix", ["smooth", "reduce", "load", "combine"])
def test_a_prefix_that_takes_a_fifth_more_is_found(prefix: str) -> None:
    """In at least 95 of 100 comparisons of 8 runs a side, whose spread is 5 %."""
    found = others = 0
    for seed in range(100):
        draws = np.random.default_rng(seed)
        first = synthetic("first", draws, n=8)
        second = synthetic("second", draws, n=8, factors={prefix: 1.2})
        effects = [e for e in measure_effects(first, second) if e.measure == "compute"]
        found += next(e for e in effects if e.name == prefix).verdict == "more"
        others += sum(e.is_real for e in effects if e.name != prefix)
    assert found >= 95
    assert others <= 0.05 * 100 * 3


@pytest.mark.parametrize("seed", range(20))
def test_the_parts_sum_to_the_difference_of_the_makespans(seed: int) -> None:
    draws = np.random.default_rng(seed)
    first = synthetic("first", draws, n=1 + seed % 5, spread=0.3)
    second = synthetic("second", draws, n=1 + seed % 3, spread=0.3, workload="words")
    split = split_difference(first, second)
    medians = [np.median([run.makespan_seconds for run in g.runs]) for g in (first, second)]
    assert split.difference_seconds == pytest.approx(medians[1] - medians[0], abs=1e-6)
    parts = sum(part.difference_seconds for part in split.parts)
    assert parts == pytest.approx(split.difference_seconds, abs=1e-9)
    assert sum(split.causes.values()) == pytest.approx(parts, abs=1e-9)
    makespan = effect(measure_effects(first, second), "makespan")
    assert makespan.difference == pytest.approx(split.difference_seconds, abs=1e-6)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_parts_of_a_path_are_its_summarys(workload: str) -> None:
    for run in repeats(workload):
        assert run.makespan_seconds == pytest.approx(run.summary.makespan_seconds, abs=1e-6)


def test_the_sentence_names_the_planted_prefix_and_its_host() -> None:
    """A prefix is slower on one of two hosts; the rest is the same."""
    [base] = synthetic("base", np.random.default_rng(0), n=1, spread=0.0).runs
    part = next(p for p in base.values.path if p.cause == "compute" and p.prefix == "smooth")
    place = next(p for p in base.values.places if p.prefix == "smooth")
    here, there = replace(place, host="n07"), replace(place, host="n08", worker="1")
    rest = tuple(p for p in base.values.path if p is not part)
    before = _with(base, "before", (*rest, replace(part, host="n07")), (here, there))
    longer = replace(part, host="n07", nanoseconds=part.nanoseconds + 36_000_000_000)
    slow = replace(here, seconds=here.seconds * 20)
    after = _with(base, "after", (*rest, longer), (slow, there))
    found = contrast(Group("before", (before,)), Group("after", (after,)))
    assert found.sentence.startswith("after takes 36 s longer than before (")
    assert "36 s in `smooth` on host n07" in found.sentence
    both = _with(base, "both", (*rest, longer), (slow, replace(there, seconds=there.seconds * 20)))
    found = contrast(Group("before", (before,)), Group("after", (both,)))
    assert "in `smooth`. " in found.sentence
    # Its tasks became slower there, but the critical path has less of them: the host is no reason.
    shorter = replace(part, host="n07", nanoseconds=part.nanoseconds // 2)
    less = _with(base, "less", (*rest, shorter), (slow, there))
    found = contrast(Group("before", (before,)), Group("after", (less,)))
    assert " less than " in found.sentence
    assert "n07" not in found.sentence


def test_a_worker_is_named_whichever_one_was_waited_for_before() -> None:
    """Before, the path led over one worker; after, over the other, whose tasks became slower."""
    [base] = synthetic("base", np.random.default_rng(0), n=1, spread=0.0).runs
    part = next(p for p in base.values.path if p.cause == "compute" and p.prefix == "smooth")
    wait = next(p for p in base.values.path if p.cause == "waiting for a worker")
    wait = replace(wait, prefix="load", occupant="smooth")
    place = next(p for p in base.values.places if p.prefix == "smooth")
    places = tuple(replace(place, worker=name) for name in "01")
    slow = (places[0], replace(places[1], seconds=2 * place.seconds))
    before = [replace(p, worker="0", nanoseconds=5 * 10**9) for p in (part, wait)]
    after = [replace(p, worker="1", nanoseconds=10**10) for p in (part, wait)]
    found = contrast(
        Group("before", (_with(base, "before", tuple(before), places),)),
        Group("after", (_with(base, "after", tuple(after), slow),)),
    )
    assert "5 s in `smooth` on worker 1" in found.sentence
    assert "5 s waiting for a free worker thread behind `smooth` on worker 1" in found.sentence


def test_attempts_that_ran_again_do_not_make_a_task_slower() -> None:
    draws = np.random.default_rng(3)
    first, second = synthetic("first", draws, n=1), synthetic("second", draws, n=1)
    [run] = first.runs
    used = run.values.prefixes["smooth"]
    again = replace(
        used,
        attempts=used.attempts * 3 // 2,
        compute_seconds=1.5 * (used.compute_seconds or 0.0),
    )
    rerun = _without(second.runs[0], {**run.values.prefixes, "smooth": again})
    effects = measure_effects(first, Group("second", (rerun,)))
    assert effect(effects, "compute", "smooth").ratio == pytest.approx(1.5)
    assert effect(effects, "compute per task", "smooth").ratio == pytest.approx(1.0)


def _with(run: ComparedRun, name: str, path, places) -> ComparedRun:
    values = replace(run.values, path=path, places=places)
    return replace(run, name=name, summary=replace(run.summary, run_id=name), values=values)


@pytest.mark.parametrize(
    ("n", "m", "words"),
    [
        (1, 1, "noise is not known"),
        (3, 3, "outside the spread seen; 3 and 3 runs are too few for a test"),
        (1, 3, "outside the spread seen; 1 and 3 runs are too few for a test"),
        (8, 8, "That is more than noise"),
    ],
)
def test_noise_is_told_by_the_number_of_runs(n: int, m: int, words: str) -> None:
    draws = np.random.default_rng(1)
    factors = dict.fromkeys(("load", "smooth", "reduce", "combine"), 2.0)
    first = synthetic("first", draws, n=n, spread=0.01)
    second = synthetic("second", draws, n=m, spread=0.01, factors=factors)
    found = contrast(first, second)
    assert words in found.sentence
    makespan = effect(found.effects, "makespan")
    assert "significant" not in found.sentence
    assert (makespan.p is None) == (min(n, m) < 4)


def test_what_is_not_detectable_is_said() -> None:
    draws = np.random.default_rng(5)
    found = contrast(synthetic("first", draws, n=5), synthetic("second", draws, n=5))
    assert "That is within noise" in found.sentence
    assert "with 5 a side, changes under" in found.sentence
    assert "are not seen" in found.sentence
    smooth = effect(found.effects, "compute", "smooth")
    assert smooth.detectable is not None
    assert smooth.detectable > 1
    share = f"{100 * (smooth.detectable - 1):.0f} % of `smooth`"
    line = prefixes_not_seen(found.first, found.second, found.effects)
    assert line.startswith(f"With 5 a side, changes of compute under {share}")
    assert line.endswith(" are not seen.")
    few = contrast(synthetic("first", draws, n=4), synthetic("second", draws, n=4))
    assert prefixes_not_seen(few.first, few.second, few.effects) == (
        "With 4 a side, no change of compute of one prefix alone is more than noise."
    )


def test_other_numbers_of_tasks_are_told_from_slower_tasks() -> None:
    draws = np.random.default_rng(2)
    first, second = synthetic("first", draws, n=5), synthetic("second", draws, n=5)
    doubled = []
    for run in second.runs:
        prefixes = dict(run.values.prefixes)
        used = prefixes["smooth"]
        prefixes["smooth"] = replace(
            used,
            tasks=2 * used.tasks,
            attempts=2 * used.attempts,
            compute_seconds=2 * (used.compute_seconds or 0),
        )
        prefixes["extra"] = prefixes.pop("reduce")
        doubled.append(replace(run, values=replace(run.values, prefixes=prefixes)))
    found = compare_groups([first, Group("second", tuple(doubled))])
    changes = {each.prefix: each.change for each in found.fairness.prefixes}
    assert changes == {"smooth": "number of tasks", "extra": "appears", "reduce": "vanishes"}
    effects = found.contrasts[0].effects
    assert effect(effects, "compute", "smooth").ratio == pytest.approx(2, rel=0.15)
    assert effect(effects, "compute per task", "smooth").ratio == pytest.approx(1, rel=0.15)
    assert effect(effects, "compute", "extra").verdict == "only in one"
    assert effect(effects, "tasks", "extra").medians[0] == 0


def test_the_rest_of_a_difference_is_in_the_sentence() -> None:
    """Ten prefixes take 5 s more each, one takes 9 s less: three are named."""
    [base] = synthetic("base", np.random.default_rng(0), n=1, spread=0.0).runs
    part = next(p for p in base.values.path if p.cause == "compute")
    parts = [replace(part, prefix=f"p{i}", occupant=f"p{i}", nanoseconds=10**9) for i in range(11)]
    longer = [replace(p, nanoseconds=6 * 10**9) for p in parts[:10]]
    before = _with(base, "before", (*parts[:10], replace(parts[10], nanoseconds=10**10)), ())
    after = _with(base, "after", (*longer, parts[10]), ())
    found = contrast(Group("before", (before,)), Group("after", (after,)))
    assert "takes 41 s longer" in found.sentence
    assert "5 s in `p0`, 5 s in `p1`, 5 s in `p2`, 26 s elsewhere." in found.sentence
    unknown = replace(part, cause="transfer", prefix=None, nanoseconds=10**10)
    found = contrast(
        Group("before", (before,)),
        Group("after", (_with(base, "after", (*before.values.path, unknown), ()),)),
    )
    assert "10 s fetching the dependencies of tasks of unknown prefix" in found.sentence


def test_a_run_without_a_prefix_had_none_of_it() -> None:
    draws = np.random.default_rng(3)
    first, second = synthetic("first", draws, n=4), synthetic("second", draws, n=4)
    run = second.runs[0]
    prefixes = {n: used for n, used in run.values.prefixes.items() if n != "combine"}
    second = Group("second", (_without(run, prefixes), *second.runs[1:]))
    found = compare_groups([first, second])
    [change] = found.fairness.prefixes
    assert (change.prefix, change.tasks) == ("combine", ((1, 1), (0, 1)))
    combine = effect(found.contrasts[0].effects, "compute", "combine")
    assert combine.second[0] == 0
    assert combine.p is not None
    no_cpu = [
        _without(r, {n: replace(u, cpu_seconds=None) for n, u in r.values.prefixes.items()})
        for r in first.runs
    ]
    found = compare_groups([Group("first", tuple(no_cpu)), second])
    assert effect(found.contrasts[0].effects, "cpu", "smooth").verdict == "unknown"


def _without(run: ComparedRun, prefixes) -> ComparedRun:
    return replace(run, values=replace(run.values, prefixes=prefixes))


def test_unknown_values_stay_unknown() -> None:
    draws = np.random.default_rng(3)
    first, second = synthetic("first", draws, n=4), synthetic("second", draws, n=4)
    run = second.runs[0]
    prefixes = dict(run.values.prefixes)
    prefixes["smooth"] = replace(prefixes["smooth"], compute_seconds=None)
    changed = replace(run, values=replace(run.values, prefixes=prefixes))
    second = Group("second", (changed, *second.runs[1:]))
    smooth = effect(measure_effects(first, second), "compute", "smooth")
    assert smooth.verdict == "unknown"
    assert None in smooth.second
    assert smooth.p is None
