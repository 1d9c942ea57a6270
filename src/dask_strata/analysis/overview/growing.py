"""The summary of a run that is being recorded, without computing all of it at each look.

The causes of time take seconds to compute for a million tasks. They are computed again when the
record has grown by a share of itself, so that they cost the same for each task, however often
somebody looks. What a summary counts is up to date at each look.
"""

from __future__ import annotations

import json
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from dask_strata.analysis.summary import Summary, summarize, summarize_further
from dask_strata.config import VERSION
from dask_strata.store.safe_files import read_inside
from dask_strata.store.summaries.typed_json import from_json, to_json

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Growth of the record, as a share of it, at which times and insights are computed again.
GROWTH = 0.02

#: Rows of transitions below which all is computed at each look.
FEW_ROWS = 100_000

#: File of the last whole summary, in the folder of the snapshot.
FILE = "summary-of-growing.json"
_FILE_BYTES = 16 << 20

#: The last whole summary of a run in this process, with the number of rows then.
_kept: WeakKeyDictionary[Run, tuple[int, Summary]] = WeakKeyDictionary()


def summary_of_growing(run: Run) -> Summary:
    """Return the summary of a run that is being recorded.

    Parameters
    ----------
    run : Run
        The run.
    """
    rows = run.record.rows
    n = rows["scheduler_transitions"] + rows["worker_transitions"]
    if n < FEW_ROWS or run.client is not None or not run.align:
        return summarize(run)
    known = _kept.get(run) or _read(run.snapshot)
    if known is not None and known[0] <= n <= known[0] * (1 + GROWTH):
        _kept[run] = known
        return summarize_further(run, known[1])
    summary = summarize(run)
    _kept[run] = n, summary
    _write(run.snapshot, n, summary)
    return summary


def _read(folder: Path | None) -> tuple[int, Summary] | None:
    """Return the summary that another process kept beside a snapshot."""
    if folder is not None:
        with suppress(OSError, ValueError, TypeError, LookupError, RecursionError):
            facts = json.loads(read_inside(folder, FILE, limit=_FILE_BYTES))
            if facts["version"] == VERSION:
                return int(facts["rows"]), from_json(Summary, facts["summary"])
    return None


def _write(folder: Path | None, rows: int, summary: Summary) -> None:
    if folder is None:
        return
    facts: dict[str, Any] = {
        "version": VERSION,
        "rows": rows,
        "summary": to_json(summary),
    }
    new = folder / f".{secrets.token_hex(4)}"
    try:
        with suppress(OSError, ValueError):
            new.write_text(json.dumps(facts), encoding="utf-8")
            new.rename(folder / FILE)
    finally:
        new.unlink(missing_ok=True)
