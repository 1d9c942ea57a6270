"""The row of a run in a list. Imports neither Arrow nor DuckDB, which take longer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from dask_strata.analysis.outcome import exit_status_of, outcome_of
from dask_strata.analysis.overview.tags import recorded_tags
from dask_strata.store.summaries.files import RunFiles
from dask_strata.store.summaries.summary_file import read_summary
from dask_strata.store.summaries.typed_json import from_json

if TYPE_CHECKING:
    from dask_strata.analysis.diagnosis import Insight
    from dask_strata.run import Run

#: Name of the row in the summary of a run.
PART = "list"

#: States of a run whose recording has ended.
ENDED = ("complete", "cut", "imported")


@dataclass(frozen=True)
class RunRow:
    """The columns of a run's row that are computed from its tables."""

    name: str
    #: State of the record, and how the run ended, see `OUTCOMES`.
    state: str
    outcome: str
    start: datetime | None
    duration_seconds: float | None
    tasks: int
    errors: int | None
    #: Users of the processes, and the commit of the script; None if they are not on record.
    user: str | None
    git_commit: str | None
    #: Tags of the recording; those that were added later are not part of the record.
    tags: tuple[str, ...]
    #: Cause and sentence of the first insight, and its cost; None without one, and as long as
    #: insights have not been computed.
    cause: str | None
    insight: str | None
    insight_seconds: float | None
    #: Number of insights; None as long as they have not been computed.
    insights: int | None


_USER = """
    select string_agg(distinct j.value, ', ' order by j.value) as users
    from job j join processes p using (process)
    where j.name = 'process.user' and p.role in ('scheduler', 'client', 'worker')
"""


def compute_row(run: Run, insights: tuple[Insight, ...] | None = None) -> RunRow:
    """Return the row of a run.

    Parameters
    ----------
    run : Run
        The run.
    insights : tuple of Insight, optional
        Its insights, if they are computed: that takes seconds for a large run.
    """
    state = run.state  # first: it reads the record anew if the recording has ended
    facts = run.rows("select * from _bounds")[0]
    counts = run.rows(
        "select count(*) as n, case when count(state) > 0 or count(*) = 0 "
        "then count(*) filter (state = 'erred') end as erred "
        "from tasks where not finished_before"
    )[0]
    commit = run.script.get("git_commit")
    dirty = run.script.get("git_dirty") == "true"
    worst = insights[0] if insights else None
    return RunRow(
        name=run.name,
        state=state,
        outcome=outcome_of(state, exit_status_of(run)),
        start=facts["first"],
        duration_seconds=facts["seconds"],
        tasks=counts["n"],
        errors=counts["erred"],
        user=run.rows(_USER)[0]["users"],
        git_commit=f"{commit} with changes" if commit and dirty else commit,
        tags=recorded_tags(run),
        cause=None if worst is None else worst.cause,
        insight=None if worst is None else worst.text,
        insight_seconds=None if worst is None else worst.seconds,
        insights=None if insights is None else len(insights),
    )


def stored_row(files: RunFiles) -> RunRow | None:
    """Return the row in the summary of a run; None if it has none for its present files.

    Parameters
    ----------
    files : RunFiles
        The present files of the run.
    """
    stored = read_summary(files, verify=False)
    if stored is None:
        return None
    try:
        row = from_json(RunRow, stored.part(PART))
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    return row if row.state in ENDED else None
