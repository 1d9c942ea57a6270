"""Whether a comparison is fair: facts that differ, graphs that differ, and spoiled runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from dask_strata.analysis.compare.runs import ComparedRun, Group
from dask_strata.errors import UsageError

#: Facts that only name a run: they have no effect on its speed.
_LABELS = ("name", "git-branch", "tag", "tag.*")

#: Facts that differ if another one does.
_IMPLIED = {"script-sha256": ("script", "git-commit")}


@dataclass(frozen=True)
class Difference:
    """A fact that differs between groups, or among the runs of one.

    Attributes
    ----------
    kind : str
        script, setting, package, machine, cluster, environment or input.
    name : str
        Name of the fact.
    values : tuple of tuple of str
        The values in each group, `UNKNOWN` where it is not on record.
    expected : bool
        Whether it was declared.
    """

    kind: str
    name: str
    values: tuple[tuple[str, ...], ...]
    expected: bool


@dataclass(frozen=True)
class PrefixChange:
    """A prefix that is not in all runs, or has another number of tasks.

    Attributes
    ----------
    prefix : str
        The prefix.
    tasks : tuple of (least, most) or None
        Number of tasks in the runs of each group; None if no run of the group has the prefix.
    """

    prefix: str
    tasks: tuple[tuple[int, int] | None, ...]

    @property
    def change(self) -> str:
        """``appears``, ``vanishes`` or ``number of tasks``, from the first to the last group."""
        if self.tasks[0] is None:
            return "appears"
        return "vanishes" if self.tasks[-1] is None else "number of tasks"


@dataclass(frozen=True)
class Spoiled:
    """A run whose times are no measure of its script.

    Attributes
    ----------
    group, run : str
        Its group and its name.
    reasons : tuple of str
        Why.
    excluded : bool
        Whether it was left out.
    """

    group: str
    run: str
    reasons: tuple[str, ...]
    excluded: bool


@dataclass(frozen=True)
class Fairness:
    """What to know before the numbers.

    Attributes
    ----------
    differences : tuple of Difference
        Facts that differ, those that were not declared first.
    prefixes : tuple of PrefixChange
        Differences of the graphs.
    spoiled : tuple of Spoiled
        Spoiled runs.
    """

    differences: tuple[Difference, ...]
    prefixes: tuple[PrefixChange, ...]
    spoiled: tuple[Spoiled, ...]

    @property
    def undeclared(self) -> tuple[Difference, ...]:
        """Facts that differ and were not declared."""
        return tuple(d for d in self.differences if not d.expected)

    @property
    def is_fair(self) -> bool:
        """Whether nothing differs that was not declared, and no spoiled run is compared."""
        return not self.undeclared and all(each.excluded for each in self.spoiled)


def assess(groups: Sequence[Group], expected: Collection[str] = ()) -> Fairness:
    """Return what differs between runs, and which of them are spoiled.

    Parameters
    ----------
    groups : sequence of Group
        The groups.
    expected : collection of str
        Names of facts that are meant to differ; ``dask.array`` stands for all settings of this
        section, and ``*`` for any text.

    Raises
    ------
    UsageError
        No run has a fact of such a name.
    """
    names = {name for group in groups for run in group.runs for name in run.facts}
    for pattern in expected:
        if not any(_matches(name, pattern) for name in names):
            raise UsageError(
                f"No run has the fact {pattern}.",
                hint="Expect a setting such as dask.array.slicing, package.NAME, git-commit, …",
            )
    differences = sorted(_differences(groups, names, expected), key=_order)
    return Fairness(tuple(differences), tuple(_prefixes(groups)), tuple(_spoiled(groups)))


def _matches(name: str, pattern: str) -> bool:
    """Return whether a name is a pattern's, or in its section.

    >>> _matches("array.slicing.split", "array.slicing"), _matches("array.chunk", "array.slicing")
    (True, False)
    >>> _matches("array.chunk", "dask.array")
    True
    """
    plain = pattern.removeprefix("dask.")
    return any(fnmatchcase(name, each) or name.startswith(f"{each}.") for each in {pattern, plain})


def _differences(
    groups: Sequence[Group], names: Collection[str], expected: Collection[str]
) -> Iterator[Difference]:
    # A run without any fact of a kind has no record of it: that is no difference.
    kinds = {
        run.name: {
            _kind(name)
            for name, value in run.facts.items()
            if value is not None and not _is_label(name)
        }
        for group in groups
        for run in group.runs
    }
    for name in sorted(names):
        if _is_label(name):
            continue
        kind = _kind(name)
        values = tuple(
            tuple(sorted({run.shown(name) for run in group.runs if kind in kinds[run.name]}))
            for group in groups
        )
        if len({value for each in values for value in each}) > 1:
            causes = (name, *_IMPLIED.get(name, ()))
            declared = any(_matches(each, pattern) for each in causes for pattern in expected)
            yield Difference(kind, name, values, declared)


def _is_label(name: str) -> bool:
    return any(fnmatchcase(name, label) for label in _LABELS)


def _kind(name: str) -> str:
    section = name.partition(".")[0]
    if section in ("package", "environment"):
        return section
    return _KINDS.get(name, "setting")


_KINDS = {
    "script": "script",
    "script-sha256": "script",
    "arguments": "script",
    "git-commit": "script",
    "inputs": "input",
    "workers": "cluster",
    "threads": "cluster",
    "hosts": "machine",
    "cpu-model": "machine",
    "cpu-cores": "machine",
    "memory-bytes": "machine",
    "kernel": "machine",
    "distribution": "machine",
    "launcher": "machine",
}

_KIND_ORDER = (
    "script", "input", "cluster", "machine", "package", "setting", "environment",
)  # fmt: skip


def _order(difference: Difference) -> tuple[bool, int, str]:
    return difference.expected, _KIND_ORDER.index(difference.kind), difference.name


def _prefixes(groups: Sequence[Group]) -> Iterator[PrefixChange]:
    names = sorted({name for group in groups for run in group.runs for name in run.values.prefixes})
    for name in names:
        numbers = [[_tasks(run, name) for run in group.runs] for group in groups]
        if len({n for each in numbers for n in each}) > 1:
            spans = tuple((min(each), max(each)) if any(each) else None for each in numbers)
            yield PrefixChange(name, spans)


def _tasks(run: ComparedRun, prefix: str) -> int:
    used = run.values.prefixes.get(prefix)
    return 0 if used is None else used.tasks


def _spoiled(groups: Sequence[Group]) -> Iterator[Spoiled]:
    for group in groups:
        for run in (*group.runs, *group.excluded):
            if run.spoiled:
                yield Spoiled(group.name, run.name, run.spoiled, run in group.excluded)
