"""The runs in a folder, one row each."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from dask_strata.errors import InterruptedQueryError, NotARunError, StrataError
from dask_strata.run import open_run
from dask_strata.store.copies.place import is_url, local_path
from dask_strata.store.copies.remote_runs import RemoteRuns
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


#: Columns of a row that a finished run's place has as JSON.
_IN_JSON = ("name", "state", "start", "duration_seconds", "tasks", "errors", "size_bytes")
_STATES = ("complete", "cut", "imported")


def list_runs(runs: str | Path) -> pa.Table:
    """Return one row per run of a folder or URL.

    Parameters
    ----------
    runs : str or Path
        The place. If it is a run itself, the result has that run's row only.

    Returns
    -------
    pa.Table
        A run that cannot be read has the reason in the column ``problem``.
    """
    rows = (
        remote_rows(RemoteRuns(str(runs)))
        if is_url(runs)
        else [list_run(path) for path in find_runs(local_path(runs))]
    )
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def remote_rows(runs: RemoteRuns) -> list[dict[str, Any]]:
    """Return the rows of the runs at a URL; only runs that are not finished are fetched.

    Parameters
    ----------
    runs : RemoteRuns
        The runs.
    """

    def row(name: str) -> dict[str, Any] | None:
        try:
            found = runs.row(name)
            known = None if found is None else _from_json(found)
            if known is not None:
                return {"run": name, **known, "problem": None}
            return list_run(runs.path(name)) | {"run": name}
        except NotARunError:
            return None  # a folder of something else
        except StrataError as error:
            return {"run": name, "problem": error.message}

    return list(runs.each(row))


def row_json(path: Path) -> bytes | None:
    """Return the row of a run for its place; None unless the run is finished and can be read.

    Parameters
    ----------
    path : Path
        The run's folder.
    """
    row = list_run(path)
    if row["problem"] is not None or row["state"] not in _STATES:
        return None
    if row["start"] is not None:
        row["start"] = row["start"].isoformat()
    return json.dumps({name: row[name] for name in _IN_JSON}).encode()


def _from_json(text: bytes) -> dict[str, Any] | None:
    """Return the row in a text that may come from anywhere; None if it is none."""
    try:
        found = json.loads(text)
        row = {name: found[name] for name in _IN_JSON}
        if row["start"] is not None:
            row["start"] = datetime.fromisoformat(row["start"])
        pa.Table.from_pylist([row], schema=_SCHEMA)
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError, pa.ArrowException):
        return None
    return row if row["state"] in _STATES else None


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
