"""The row of a run in a list. Imports neither Arrow nor DuckDB, which take longer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from dask_strata.analysis.outcome import exit_status_of, outcome_of
from dask_strata.store.summaries.files import RunFiles
from dask_strata.store.summaries.summary_file import read_summary
from dask_strata.store.summaries.typed_json import from_json

if TYPE_CHECKING:
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


def compute_row(run: Run) -> RunRow:
    """Return the row of a run.

    Parameters
    ----------
    run : Run
        The run.
    """
    state = run.state  # first: it reads the record anew if the recording has ended
    facts = run.rows("select * from _bounds")[0]
    counts = run.rows(
        "select count(*) as n, case when count(state) > 0 or count(*) = 0 "
        "then count(*) filter (state = 'erred') end as erred "
        "from tasks where not finished_before"
    )[0]
    return RunRow(
        name=run.name,
        state=state,
        outcome=outcome_of(state, exit_status_of(run)),
        start=facts["first"],
        duration_seconds=facts["seconds"],
        tasks=counts["n"],
        errors=counts["erred"],
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
