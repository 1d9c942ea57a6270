"""OpenMetrics: series by worker and by prefix, with times, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dask_strata.export.exporter import Exporter, Job
from dask_strata.export.telemetry.openmetrics.families import (
    COUNTERS,
    GAUGES,
    OTHER_PREFIXES,
    OTHER_WORKERS,
    PREFIXES,
    WORKERS,
    Family,
    Part,
)
from dask_strata.export.telemetry.openmetrics.steps import Steps

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Most values of the labels prefix and worker.
MOST_PREFIXES = 100
MOST_WORKERS = 1_000

#: Seconds are summed as nanoseconds: sums of integers do not depend on the order of the rows.
_NANOSECONDS = 1_000_000_000

_INFO = """
    select w.worker, any_value(w.name) as name, any_value(w.host) as host,
           any_value(w.process) as process, any_value(w.nthreads)::varchar as threads
    from workers w where w.worker in (select unnest($1::varchar[])) group by w.worker
    order by w.worker
"""

_ENDLESS = "select count(*) as n from attempts where stop is null"


class OpenMetrics(Exporter):
    """OpenMetrics' text with times, which promtool makes blocks of."""

    name: ClassVar[str] = "openmetrics"
    summary: ClassVar[str] = "OpenMetrics with times: promtool tsdb create-blocks-from openmetrics"
    suffix: ClassVar[str] = ".txt"
    media_type: ClassVar[str | None] = "application/openmetrics-text; version=1.0.0; charset=utf-8"

    def write(self, run: Run, path: Path, job: Job) -> None:
        """Write the series of a run."""
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.writelines(_Series(run, job).lines())


class _Series:
    """The series of a run."""

    def __init__(self, run: Run, job: Job) -> None:
        self._run = run
        self._job = job
        self._prefixes = _bounded(
            run, PREFIXES, MOST_PREFIXES, job, f"prefixes are summed under {OTHER_PREFIXES!r}"
        )
        self._workers = _bounded(
            run,
            WORKERS,
            MOST_WORKERS,
            job,
            f"workers are summed under {OTHER_WORKERS!r}, without their samples",
        )
        self._steps = Steps.of(run, len(self._workers))
        self._run_label = _label("run", run.manifest.run_id)
        self._counts = {"samples": 0, "series": 0}

    def lines(self) -> Iterator[str]:
        """Yield the lines of the output."""
        if self._steps is None:
            self._job.note("The run has no attempts, transfers or samples: there are no series.")
        else:
            self._note_steps(self._steps)
            for done, family in enumerate((*COUNTERS, *GAUGES)):
                self._job.progress(done, len(COUNTERS) + len(GAUGES))
                yield from self._family(family, self._steps)
            yield from self._info(self._steps)
        yield from self._notes(self._steps)
        self._job.counts.update(self._counts)
        yield "# EOF\n"

    def _note_steps(self, steps: Steps) -> None:
        self._job.note(
            f"There is at most one sample of a series in {steps.length_ms / 1000:g} s: counters "
            "have their value at its end, gauges their last one."
        )
        endless = self._run.rows(_ENDLESS)[0]["n"]
        if endless:
            self._job.note(f"{endless:,} attempts without a known end are not counted.")

    def _family(self, family: Family, steps: Steps) -> Iterator[str]:
        head = [f"# TYPE {family.name} {family.kind}\n"]
        if family.unit:
            head.append(f"# UNIT {family.name} {family.unit}\n")
        head.append(f"# HELP {family.name} {_escaped(family.help)}\n")
        name = family.name + ("_total" if family.kind == "counter" else "")
        for part in family.parts:
            for labels, values in self._series(part, family, steps):
                yield from head
                head = []
                series = f"{name}{{{self._run_label},{labels}}}"
                for step, value in _counted(values, steps) if family.sums else values:
                    number = (
                        value / _NANOSECONDS if family.sums and family.unit == "seconds" else value
                    )
                    self._counts["samples"] += 1
                    yield f"{series} {_plain(number)} {steps.time(step)}\n"
                self._counts["series"] += 1

    def _series(
        self, part: Part, family: Family, steps: Steps
    ) -> Iterator[tuple[str, list[tuple[int, Any]]]]:
        """Yield the labels of each series, with its steps and their values."""
        labels = ", ".join(f'{sql} as "{name}"' for name, sql in part.labels.items())
        names = ", ".join(f'"{name}"' for name in part.labels)
        # A sum of samples of several workers would be a sum of different moments.
        only = "" if family.sums else f"and worker <> '{OTHER_WORKERS}'"
        query = f"""
            select {names}, step, {_value(family)} as value from (
                select {labels}, {steps.sql(part.time)} as step, {part.value} as value,
                       {part.time} as time
                from {part.source} where {part.time} is not null
            ) where isfinite(value::double) {only}
              and $1::varchar[] is not null and $2::varchar[] is not null
            group by {names}, step order by {names}, step
        """  # noqa: S608  no value of the record
        held: tuple[Any, ...] | None = None
        values: list[tuple[int, Any]] = []
        for batch in self._run.batches(query, self._prefixes, self._workers):
            columns = [column.to_pylist() for column in batch.columns]
            for *of, step, number in zip(*columns, strict=True):
                if held != tuple(of):
                    if held is not None:
                        yield _labels(part, held), values
                    held, values = tuple(of), []
                values.append((step, int(number) if family.sums else number))
        if held is not None:
            yield _labels(part, held), values

    def _info(self, steps: Steps) -> Iterator[str]:
        rows = self._run.rows(_INFO, self._workers)
        if rows:
            yield "# TYPE dask_strata_worker info\n"
            yield "# HELP dask_strata_worker Names, hosts and processes of workers.\n"
        for row in rows:
            labels = ",".join(_label(name, value) for name, value in row.items() if value)
            series = f"dask_strata_worker_info{{{self._run_label},{labels}}}"
            for step, value in _counted([(0, 1)], steps):
                yield f"{series} {value} {steps.time(step)}\n"

    def _notes(self, steps: Steps | None) -> Iterator[str]:
        """Yield the notes as series, as the format has no comments."""
        if not self._job.notes:
            return
        yield "# TYPE dask_strata_export_note info\n"
        yield "# HELP dask_strata_export_note What this export lacks or aggregates.\n"
        time = f" {steps.time(steps.last)}" if steps is not None else ""
        for note in self._job.notes:
            label = _label("note", note)
            yield f"dask_strata_export_note_info{{{self._run_label},{label}}} 1{time}\n"


def _counted(values: list[tuple[int, int]], steps: Steps) -> Iterator[tuple[int, int]]:
    """Yield the sum so far at each step with a change, at step 0, and at the last step.

    Longer times without a change have samples, too, so that the series stays visible.
    """
    total, at = 0, 0
    for step, value in [*values, (steps.last, 0)]:
        if step > at:
            yield at, total
            for between in range(at + steps.gap, step, steps.gap):
                yield between, total
        at = step
        total += value
    yield at, total


def _value(family: Family) -> str:
    """Return SQL for the value of a series at a step."""
    if not family.sums:
        return "arg_max(value, (time, value))"
    if family.unit == "seconds":
        return f"sum(round(value * {_NANOSECONDS})::hugeint)::varchar"
    return "sum(value::hugeint)::varchar"


def _bounded(run: Run, query: str, most: int, job: Job, text: str) -> list[str]:
    """Return the first rows of a query; note how many more there are."""
    names = [row["name"] for row in run.rows(query)]
    if len(names) > most:
        job.note(f"{len(names) - most:,} {text}.")
    return names[:most]


def _labels(part: Part, values: tuple[Any, ...]) -> str:
    return ",".join(
        _label(name, str(value)) for name, value in zip(part.labels, values, strict=True)
    )


def _label(name: str, value: str) -> str:
    return f'{name}="{_escaped(value)}"'


def _escaped(text: str) -> str:
    r"""Return a text as labels contain it.

    >>> print(_escaped('the "first"'))
    the \"first\"
    """
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _plain(number: float) -> str:
    """Return a number as text.

    >>> _plain(2.0), _plain(0.5)
    ('2', '0.5')
    """
    return str(int(number)) if number == int(number) else repr(number)
