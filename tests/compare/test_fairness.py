"""What differs between runs, and which are spoiled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dask_strata.analysis.compare.compare import compare_groups
from dask_strata.analysis.compare.fairness import assess
from dask_strata.analysis.compare.runs import ComparedRun, Group, group_by, make_groups
from dask_strata.analysis.compare.sentences import spoiled_line
from dask_strata.analysis.diagnosis.insight import Insight
from dask_strata.analysis.diagnosis.rules.machine.cpu_starvation import BY_OTHERS
from dask_strata.analysis.overview.comparable import Inputs
from dask_strata.errors import StrataError, UsageError
from tests.support.repeats import repeats, synthetic


@pytest.fixture
def pair() -> tuple[Group, Group]:
    draws = np.random.default_rng(0)
    return synthetic("before", draws, n=2), synthetic("after", draws, n=2)


def changed(group: Group, **values) -> Group:
    runs = tuple(replace(run, values=replace(run.values, **values)) for run in group.runs)
    return Group(group.name, runs)


def test_repeats_are_fair(pair: tuple[Group, Group]) -> None:
    found = compare_groups(pair)
    assert found.fairness.is_fair
    assert (
        found.fair
        == "Fair: nothing on record differs that was not declared, and no run is spoiled."
    )


@pytest.mark.parametrize("workload", ["images", "words"])
def test_real_repeats_are_alike(workload: str) -> None:
    assert compare_groups([Group("runs", repeats(workload))]).fairness.differences == ()


def test_each_kind_of_fact_is_named(pair: tuple[Group, Group]) -> None:
    before, after = pair
    values = after.runs[0].values
    facts = {**values.facts, "git-commit": "1" * 40, "arguments": "--fast", "hosts": "n1"}
    settings = {**values.settings, "array.slicing.split": "true"}
    packages = {**values.packages, "dask": "1999.1"}
    inputs = Inputs(n=1, nbytes=10, digest="abcdef")
    after = changed(after, facts=facts, settings=settings, packages=packages, inputs=inputs)
    runs = tuple(replace(run, summary=replace(run.summary, n_workers=3)) for run in after.runs)
    after = Group("after", runs)
    found = assess([before, after])
    kinds = {each.name: each.kind for each in found.differences}
    assert kinds == {
        "arguments": "script",
        "git-commit": "script",
        "inputs": "input",
        "workers": "cluster",
        "hosts": "machine",
        "package.dask": "package",
        "array.slicing.split": "setting",
    }
    assert compare_groups([before, after]).fair.startswith("Not alike: arguments none → --fast; ")
    expect = ("git-*", "arguments", "inputs", "workers", "hosts", "package.dask")
    declared = assess([before, after], (*expect, "dask.array.slicing"))
    assert declared.is_fair
    assert len(declared.differences) == 7
    [left] = assess([before, after], expect).undeclared
    assert left.name == "array.slicing.split"


def test_our_own_settings_and_names_are_no_difference(pair: tuple[Group, Group]) -> None:
    before, after = pair
    assert not any(name.startswith("dask_strata") for name in before.runs[0].facts)
    facts = {**after.runs[0].values.facts, "name": "other", "tag": "b", "git-branch": "b"}
    assert assess([before, changed(after, facts=facts)]).is_fair


def test_facts_that_a_run_does_not_record_are_no_difference(pair: tuple[Group, Group]) -> None:
    """An imported run has no packages."""
    before, after = pair
    assert assess([before, changed(after, packages={}, settings={})]).is_fair


def test_unknown_expected_facts_are_an_error(pair: tuple[Group, Group]) -> None:
    with pytest.raises(UsageError, match=r"No run has the fact no\.such"):
        assess(pair, ["no.such"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"outcome": "failed"}, "it failed"),
        ({"outcome": "cut off"}, "it was cut off"),
        ({"n_erred": 2}, "2 tasks failed"),
        ({"n_replaced": 1}, "1 worker came later, or again"),
    ],
)
def test_spoiled_runs_are_named(pair: tuple[Group, Group], changes, words: str) -> None:
    before, after = pair
    run = after.runs[0]
    spoiled = replace(run, summary=replace(run.summary, **changes))
    assert spoiled.spoiled == (words,)
    group = Group("after", (spoiled, after.runs[1]))
    found = compare_groups([before, group])
    assert found.fair == "1 spoiled run."
    [line] = map(spoiled_line, found.fairness.spoiled)
    assert line == f"spoiled: {run.name}: {words}"
    made = make_groups([("before", before.runs), ("after", group.runs)], exclude_spoiled=True)
    assert [r.name for r in made[1].runs] == ["after-1"]
    assert [r.name for r in made[1].excluded] == ["after-0"]
    found = compare_groups(made)
    assert found.fairness.is_fair
    assert found.fair.endswith("no run is spoiled. 1 spoiled run left out.")
    [line] = map(spoiled_line, found.fairness.spoiled)
    assert line == f"spoiled, left out: {run.name}: {words}"
    with pytest.raises(StrataError, match="All runs of after are spoiled"):
        make_groups([("after", (spoiled,))], exclude_spoiled=True)


def test_lost_workers_and_retries_spoil() -> None:
    run = repeats("images")[0]
    lost = replace(run, values=replace(run.values, lost_workers=1))
    assert lost.spoiled == ("lost 1 worker",)
    prefix = replace(run.summary.prefixes[0], n_retried=3)
    retried = replace(run, summary=replace(run.summary, prefixes=(prefix,)))
    assert retried.spoiled == ("3 attempts ran again",)


def test_one_run_twice_is_an_error(pair: tuple[Group, Group]) -> None:
    before, after = pair
    with pytest.raises(UsageError, match=r"before-0 is given twice"):
        make_groups([("a", before.runs), ("b", (*after.runs, before.runs[0]))])
    with pytest.raises(UsageError, match="has no run"):
        make_groups([("a", before.runs), ("b", ())])
    with pytest.raises(UsageError, match="same name"):
        make_groups([("a", before.runs), ("a", after.runs)])


def test_folders_of_one_name_are_told_apart(pair: tuple[Group, Group]) -> None:
    """Facts and values belong to the run, not to the name of its folder."""
    before, after = (
        [
            replace(
                run,
                name="run",
                summary=replace(run.summary, path=f"/{group.name}/run", run_id=f"{group.name}{i}"),
            )
            for i, run in enumerate(group.runs)
        ]
        for group in pair
    )
    made = make_groups(
        [("before", before), ("after", changed(Group("after", tuple(after)), packages={}).runs)]
    )
    names = [run.name for group in made for run in group.runs]
    assert names == [
        "before/run (before0)",
        "before/run (before1)",
        "after/run (after0)",
        "after/run (after1)",
    ]
    assert assess(made).is_fair


def test_a_run_that_reads_files_differs_from_one_that_reads_none(pair: tuple[Group, Group]) -> None:
    before, after = pair
    after = changed(after, inputs=Inputs(n=1, nbytes=10, digest="abcdef"))
    [found] = assess([before, after]).differences
    assert (found.name, found.values) == ("inputs", (("no file",), ("1 file, 10 B (abcdef)",)))
    imported = tuple(
        replace(r, summary=replace(r.summary, outcome="imported")) for r in before.runs
    )
    assert assess([Group("before", imported), after]).is_fair


def _tagged(run: ComparedRun, tag: str) -> ComparedRun:
    return replace(run, values=replace(run.values, facts={**run.values.facts, "tag": tag}))


def test_groups_by_a_fact(pair: tuple[Group, Group]) -> None:
    before, after = pair
    runs = [*(_tagged(r, "old") for r in before.runs), *(_tagged(r, "new") for r in after.runs)]
    fact, groups = group_by(runs, "tag")
    assert fact == "tag"
    assert {name: len(each) for name, each in groups} == {"tag old": 2, "tag new": 2}
    with pytest.raises(UsageError, match=r"No run has the fact colour"):
        group_by(runs, "colour")
    with pytest.raises(UsageError, match="All runs have the same script"):
        group_by(runs, "script")


@pytest.mark.parametrize("spelling", ["git-commit", "git commit", "git_commit"])
def test_a_commit_with_changes_is_another_one(pair: tuple[Group, Group], spelling: str) -> None:
    runs = [run for group in pair for run in group.runs][:3]
    commits = ("1" * 40, f"{'1' * 40} with changes", "2" * 40)
    runs = [
        replace(r, values=replace(r.values, facts={**r.values.facts, "git-commit": commit}))
        for r, commit in zip(runs, commits, strict=True)
    ]
    fact, groups = group_by(runs, spelling)
    assert fact == "git-commit"
    assert sorted(name for name, _ in groups) == [
        "git-commit 111111111111",
        "git-commit 111111111111 with changes",
        "git-commit 222222222222",
    ]


def test_a_setting_may_be_spelled_with_dask(pair: tuple[Group, Group]) -> None:
    runs = [run for group in pair for run in group.runs]
    with pytest.raises(UsageError, match=r"All runs have the same array\.chunk-size"):
        group_by(runs, "dask.array.chunk-size")


def test_long_values_are_cut_to_where_they_differ(pair: tuple[Group, Group]) -> None:
    before, after = pair
    facts = after.runs[0].values.facts
    folder = "/data/project/some/very/long/path/to/" * 2
    groups = [
        changed(group, facts={**facts, "arguments": folder + end})
        for group, end in ((before, "a"), (after, "b"))
    ]
    assert compare_groups(groups).fair == "Not alike: arguments …path/to/a → …path/to/b."


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        (f"`x` waited for a CPU {BY_OTHERS}", ("others, or a limit, took its CPUs for 2 s",)),
        ("`x` waited for a CPU beside the threads that libraries start in each task", ()),
    ],
)
def test_only_starvation_by_others_spoils(text: str, reasons: tuple[str, ...]) -> None:
    """A comparison of a run's own threads must not leave out the runs that it is about."""
    run = repeats("images")[0]
    insights = (Insight("cpu-starvation", text, 2.0),)
    assert replace(run, summary=replace(run.summary, insights=insights)).spoiled == reasons
