"""The runs in a folder, one row each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from dask_strata.errors import InterruptedQueryError, StrataError
from dask_strata.run import open_run
from dask_strata.store.reader import find_runs
from dask_strata.store.safe_files import is_file

_SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("name", pa.string()),
        ("state", pa.string()),
        ("start", pa.timestamp("ms", "UTC")),
        ("duration_seconds", pa.float64()),
        ("tasks", pa.int64()),
        ("errors", pa.int64()),
        ("size_bytes", pa.int64()),
        ("problem", pa.string()),
    ]
)


def list_runs(runs: Path) -> pa.Table:
    """Return one row per run of a folder.

    Parameters
    ----------
    runs : Path
        The folder. If it is a run itself, the result has that run's row only.

    Returns
    -------
    pa.Table
        A run that cannot be read has the reason in the column ``problem``.
    """
    return pa.Table.from_pylist([list_run(path) for path in find_runs(runs)], schema=_SCHEMA)


def list_run(path: Path) -> dict[str, Any]:
    """Return the row of one run, see `list_runs`.

    Parameters
    ----------
    path : Path
        The run's folder.
    """
    size = sum(f.lstat().st_size for f in path.rglob("*") if is_file(f))
    row: dict[str, Any] = {"run": path.name, "size_bytes": size, "problem": None}
    try:
        run = open_run(path)
        facts = run.rows("select * from _bounds")[0]
        counts = run.rows(
            "select count(*) as n, case when count(state) > 0 or count(*) = 0 "
            "then count(*) filter (state = 'erred') end as erred "
            "from tasks where not finished_before"
        )[0]
        row |= {
            "name": run.name,
            "state": run.state,
            "start": facts["first"],
            "duration_seconds": facts["seconds"],
            "tasks": counts["n"],
            "errors": counts["erred"],
        }
    except InterruptedQueryError:  # Ctrl-C ends the list, not only this row
        raise
    except StrataError as error:
        row["problem"] = error.message
    return row
