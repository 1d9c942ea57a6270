"""The runs that are compared: their values, what spoils them, and their groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path

from dask_strata.analysis.diagnosis.rules.machine.cpu_starvation import BY_OTHERS
from dask_strata.analysis.overview.comparable import Comparable
from dask_strata.analysis.overview.stored import compared
from dask_strata.analysis.overview.tags import with_tags
from dask_strata.analysis.summary import Summary
from dask_strata.analysis.words import count, duration, size
from dask_strata.errors import NothingToCompareError, UnfinishedRunError, UsageError
from dask_strata.run import Run, open_run
from dask_strata.store.manifest import MANIFEST, find_runs
from dask_strata.store.summaries.notes import readable_notes

#: Text for a fact that a run does not have on record.
UNKNOWN = "unknown"


@dataclass(frozen=True)
class ComparedRun:
    """One run of a comparison.

    Attributes
    ----------
    name : str
        Name of its folder.
    summary : Summary
        Its summary.
    values : Comparable
        Its values that are compared.
    """

    name: str
    summary: Summary
    values: Comparable

    @property
    def start(self) -> datetime | None:
        """First moment on record."""
        return self.summary.start

    @property
    def makespan_seconds(self) -> float:
        """Sum of the parts of the critical path."""
        return sum(part.nanoseconds for part in self.values.path) / 1e9

    @cached_property
    def facts(self) -> dict[str, str | None]:
        """All facts by name: of the run, its settings, its packages, its cluster, its inputs."""
        summary, values = self.summary, self.values
        inputs = values.inputs
        return {
            **values.facts,
            **{f"package.{name}": version for name, version in values.packages.items()},
            **values.settings,
            "workers": str(summary.n_workers),
            "threads": None if summary.n_threads is None else str(summary.n_threads),
            # An imported run may have read files that are not on record.
            "inputs": inputs.digest or (None if summary.outcome == "imported" else ""),
        }

    def shown(self, fact: str) -> str:
        """Return the value of a fact as it is shown: hashes are short.

        Parameters
        ----------
        fact : str
            Name of the fact.
        """
        value, inputs = self.facts.get(fact), self.values.inputs
        if fact == "inputs" and inputs.n:
            return f"{count(inputs.n, 'file')}, {size(inputs.nbytes)} ({inputs.digest[:6]})"
        if value is None:
            return "none" if fact.startswith("tag") else UNKNOWN
        if not value:
            return "no file" if fact == "inputs" else "none"
        if fact == "git-commit":
            commit, _, changes = value.partition(" ")
            return f"{commit[:12]} {changes}".rstrip()
        return value[:12] if fact == "script-sha256" else value

    @property
    def unfinished(self) -> str:
        """How the run ended if it did not finish: failed, was cancelled; empty if it finished."""
        outcome = self.summary.outcome
        return "" if outcome in ("finished", "imported") else _ENDS.get(outcome, outcome)

    @cached_property
    def spoiled(self) -> tuple[str, ...]:
        """What makes its times no measure of the script: one phrase for each reason."""
        summary = self.summary
        causes = {insight.cause: insight for insight in summary.insights}
        retried = sum(prefix.n_retried for prefix in summary.prefixes)
        reasons = []
        if self.unfinished:
            reasons.append(f"it {self.unfinished}")
        if summary.n_erred:
            reasons.append(f"{count(summary.n_erred, 'task')} failed")
        if self.values.lost_workers:
            reasons.append(f"lost {count(self.values.lost_workers, 'worker')}")
        if summary.n_replaced:
            reasons.append(f"{count(summary.n_replaced, 'worker')} came later, or again")
        if retried:
            reasons.append(f"{count(retried, 'attempt')} ran again")
        starved = causes.get("cpu-starvation")
        if starved is not None and BY_OTHERS in starved.text:
            cost = "" if starved.seconds is None else f" for {duration(starved.seconds)}"
            reasons.append(f"others, or a limit, took its CPUs{cost}")
        if not summary.check.ok:
            reasons.append("its record is incomplete")
        return tuple(reasons)


_ENDS = {
    "failed": "failed",
    "cancelled": "was cancelled",
    "cut off": "was cut off",
}


@dataclass(frozen=True)
class Group:
    """Runs that are repeats of each other.

    Attributes
    ----------
    name : str
        Its name.
    runs : tuple of ComparedRun
        Its runs, in order of their starts.
    excluded : tuple of ComparedRun
        Runs that were left out, as they are spoiled.
    """

    name: str
    runs: tuple[ComparedRun, ...]
    excluded: tuple[ComparedRun, ...] = ()

    @property
    def middle(self) -> tuple[ComparedRun, ...]:
        """The run with the median makespan, or the two runs between which the median is."""
        ordered = sorted(self.runs, key=lambda run: run.makespan_seconds)
        return tuple(ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1])


def runs_at(place: Run | str | Path) -> list[Run | str | Path]:
    """Return the runs at a place: itself, or those of a folder of runs.

    Parameters
    ----------
    place : Run, str or Path
        A run, its folder, or a folder of runs.
    """
    if isinstance(place, Run):
        return [place]
    with suppress(OSError):  # reading the run reports it
        path = Path(place)
        if path.is_dir() and not (path / MANIFEST).exists():
            return [*find_runs(path)] or [place]
    return [place]


def observe(run: Run | str | Path, progress: Callable[[str], None] = lambda _: None) -> ComparedRun:
    """Return a run's values that are compared.

    Parameters
    ----------
    run : Run, str or Path
        The run, or its folder.
    progress : callable
        Receives the run's name before it is read.

    Raises
    ------
    UnfinishedRunError
        It is still being recorded.
    NothingToCompareError
        It has no execution of a task on record.
    StrataError
        It cannot be read.
    """
    opened = run if isinstance(run, Run) else open_run(run)
    progress(opened.path.name)
    if opened.is_growing:
        raise UnfinishedRunError(
            f"{opened.location} is still being recorded, so that its times are not final.",
            hint=f"Wait for its end: dask-strata show --follow {opened.location}",
        )
    summary, values = compared(opened)
    if not values.path:
        raise NothingToCompareError(
            f"{opened.location} has no execution of a task on record: there is nothing to compare.",
            hint=f"dask-strata check {opened.location}",
        )
    facts = with_tags(values.facts, readable_notes(opened.path).tags)
    return ComparedRun(opened.path.name, summary, replace(values, facts=facts))


def make_groups(
    groups: Iterable[tuple[str, Sequence[ComparedRun]]], *, exclude_spoiled: bool = False
) -> tuple[Group, ...]:
    """Return groups of runs.

    Parameters
    ----------
    groups : iterable of (name, runs)
        The groups.
    exclude_spoiled : bool
        Whether to leave out spoiled runs.

    Raises
    ------
    UsageError
        A run is there twice, two groups have one name, or a group has no run.
    NothingToCompareError
        All runs of a group are spoiled, and left out.
    """
    made = []
    for name, runs in _told_apart(groups):
        ordered = sorted(runs, key=lambda run: (run.start is None, run.start, run.name))
        excluded = [run for run in ordered if exclude_spoiled and run.spoiled]
        kept = [run for run in ordered if not (exclude_spoiled and run.spoiled)]
        if ordered and not kept:
            raise NothingToCompareError(
                f"All runs of {name} are spoiled: {ordered[0].name}: {ordered[0].spoiled[0]}.",
                hint="Compare them without --exclude-spoiled.",
            )
        if not kept:
            raise UsageError(
                f"The group {name} has no run." if name else "There is no run.", hint=_HINT
            )
        made.append(Group(name, tuple(kept), tuple(excluded)))
    ids = Counter(run.summary.run_id for group in made for run in (*group.runs, *group.excluded))
    for group in made:
        for run in (*group.runs, *group.excluded):
            if ids[run.summary.run_id] > 1:
                raise UsageError(f"{run.name} is given twice.", hint=_HINT)
    if len({group.name for group in made}) < len(made):
        raise UsageError("Two groups have the same name.", hint=_HINT)
    return tuple(made)


def _told_apart(
    groups: Iterable[tuple[str, Sequence[ComparedRun]]],
) -> Iterator[tuple[str, list[ComparedRun]]]:
    """Yield groups whose runs have different names: folders of one name with that above them."""
    listed = [(name, list(runs)) for name, runs in groups]
    ids: dict[str, set[str]] = {}
    for _, runs in listed:
        for run in runs:
            ids.setdefault(run.name, set()).add(run.summary.run_id)
    for name, runs in listed:
        yield name, [run if len(ids[run.name]) == 1 else _with_longer_name(run) for run in runs]


def _with_longer_name(run: ComparedRun) -> ComparedRun:
    above = Path(run.summary.path).parent.name
    return replace(run, name=f"{above}/{run.name} ({run.summary.run_id[:8]})")


def group_by(
    runs: Sequence[ComparedRun], fact: str
) -> tuple[str, list[tuple[str, list[ComparedRun]]]]:
    """Return the name of a fact, and runs in groups by it, in the order of their first runs.

    Parameters
    ----------
    runs : sequence of ComparedRun
        The runs.
    fact : str
        Name of a fact, such as git-commit, tag, package.dask or a setting of Dask.

    Raises
    ------
    UsageError
        No run has this fact, or it is the same in all.
    """
    known = {name for run in runs for name in run.facts}
    fact = next((each for each in _spellings(fact) if each in known), fact)
    if fact not in known:
        tags = sorted(name for name in known if name.startswith("tag"))
        shown = ", ".join([*_SHOWN_FACTS, *tags])
        raise UsageError(
            f"No run has the fact {fact}.",
            hint=f"Facts are {shown}, package.NAME, environment.NAME and the settings of Dask.",
        )
    groups: dict[str | None, list[ComparedRun]] = {}
    for run in sorted(runs, key=lambda run: (run.start is None, run.start, run.name)):
        groups.setdefault(run.facts.get(fact), []).append(run)
    named = [(f"{fact} {each[0].shown(fact)}", each) for each in groups.values()]
    if len(named) == 1:
        raise UsageError(
            f"All runs have the same {fact}: {runs[0].shown(fact)}.",
            hint="Compare by another fact, or without --by.",
        )
    if len({name for name, _ in named}) < len(named):
        # Long values that begin alike.
        named = [(f"{fact} {each[0].facts.get(fact)}", each) for each in groups.values()]
    return fact, named


def _spellings(fact: str) -> tuple[str, ...]:
    """Return the ways in which a fact may be written: ``git commit``, ``dask.array.chunk-size``."""
    plain = fact.replace(" ", "-").replace("_", "-")
    return fact, fact.removeprefix("dask."), plain, plain.removeprefix("dask.")


_SHOWN_FACTS = (
    "name",
    "script",
    "arguments",
    "git-commit",
    "git-branch",
    "hosts",
    "cpu-model",
    "workers",
    "threads",
    "inputs",
)

_HINT = "Give two runs or more, or two groups of runs, each run once."
