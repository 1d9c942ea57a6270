"""The runs in a folder, one row each.

Arrow and DuckDB are imported only where they are needed: the stored summaries of a thousand runs
are read in the time of these imports.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dask_strata.analysis.overview.row import ENDED, RunRow, stored_row
from dask_strata.errors import InterruptedQueryError, NotARunError, StrataError
from dask_strata.store.copies.place import is_url, local_path
from dask_strata.store.manifest import find_runs
from dask_strata.store.summaries.files import list_files
from dask_strata.store.summaries.notes import readable_notes
from dask_strata.store.summaries.typed_json import from_json
from dask_strata.store.zipped.copy import is_bundle
from dask_strata.store.zipped.files import bundle_files

if TYPE_CHECKING:
    import pyarrow as pa

    from dask_strata.store.copies.remote_runs import RemoteRuns

#: Columns of the list, each with whether it has numbers.
COLUMNS = {
    "number": True,
    "run": False,
    "name": False,
    "outcome": False,
    "start": False,
    "duration_seconds": True,
    "tasks": True,
    "errors": True,
    "size_bytes": True,
    "tags": False,
    "problem": False,
}

#: Further columns, which a terminal shows on demand.
MORE = {
    "state": False,
    "user": False,
    "git_commit": False,
    "cause": False,
    "insight": False,
    "insight_seconds": True,
    "note": False,
}

#: The most important columns first, where there is no space for all.
IMPORTANT = (
    "number",
    "run",
    "problem",
    "outcome",
    "duration_seconds",
    "tasks",
    "errors",
    "name",
    "start",
    "tags",
    "size_bytes",
)

#: Columns of a row that a finished run's place has as JSON.
_IN_JSON = (*(field.name for field in fields(RunRow)), "size_bytes")


def list_runs(runs: str | Path) -> pa.Table:
    """Return one row per run of a folder or URL.

    Parameters
    ----------
    runs : str or Path
        The place. If it is a run itself, the result has that run's row only.

    Returns
    -------
    pa.Table
        The oldest run is first; the column ``number`` is 1 for the newest. A run that cannot be
        read has the reason in the column ``problem``.
    """
    return table_of(list_rows(runs))


def list_rows(runs: str | Path) -> list[dict[str, Any]]:
    """Return the rows of `list_runs` as mappings; a run with a problem lacks some columns.

    Parameters
    ----------
    runs : str or Path
        The place.
    """
    if is_url(runs):
        from dask_strata.store.copies.remote_runs import RemoteRuns

        rows = remote_rows(RemoteRuns(str(runs)))
    else:
        rows = [list_run(path) for path in find_runs(local_path(runs))]
    return [{"number": n, **row} for n, row in zip(range(len(rows), 0, -1), rows, strict=True)]


def table_of(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return the rows of runs as a table.

    Parameters
    ----------
    rows : iterable of mapping
        The rows.
    """
    import pyarrow as pa

    schema = pa.schema(
        [
            ("number", pa.int64()),
            ("run", pa.string()),
            ("name", pa.string()),
            ("state", pa.string()),
            ("outcome", pa.string()),
            ("start", pa.timestamp("ms", "UTC")),
            ("duration_seconds", pa.float64()),
            ("tasks", pa.int64()),
            ("errors", pa.int64()),
            ("size_bytes", pa.int64()),
            ("tags", pa.string()),
            ("user", pa.string()),
            ("git_commit", pa.string()),
            ("cause", pa.string()),
            ("insight", pa.string()),
            ("insight_seconds", pa.float64()),
            ("note", pa.string()),
            ("problem", pa.string()),
        ]
    )
    listed = [{**row, "tags": ", ".join(row["tags"]) if row.get("tags") else None} for row in rows]
    return pa.Table.from_pylist(listed, schema=schema)


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
    if row["problem"] is not None or row["state"] not in ENDED:
        return None
    if row["start"] is not None:
        row["start"] = row["start"].isoformat()
    return json.dumps({name: row[name] for name in _IN_JSON}).encode()


def _from_json(text: bytes) -> dict[str, Any] | None:
    """Return the row in a text that may come from anywhere; None if it is none."""
    try:
        found = json.loads(text)
        size = from_json(int, found["size_bytes"])
        row = from_json(RunRow, {name: found[name] for name in _IN_JSON if name != "size_bytes"})
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    return {**vars(row), "note": None, "size_bytes": size} if row.state in ENDED else None


def list_run(path: Path) -> dict[str, Any]:
    """Return the row of one run, see `list_runs`.

    Parameters
    ----------
    path : Path
        The run's folder, or its bundle.
    """
    try:
        files = bundle_files(path) if is_bundle(path) else list_files(path)
    except NotARunError as error:
        size = path.stat().st_size if path.is_file() else None
        return {"run": path.name, "size_bytes": size, "problem": error.message}
    row: dict[str, Any] = {"run": path.name, "size_bytes": files.size_bytes, "problem": None}
    found = stored_row(files)
    if found is None:
        from dask_strata.analysis.overview.stored import row_of

        try:
            found = row_of(path, files)
        except InterruptedQueryError:  # Ctrl-C ends the list, not only this row
            raise
        except StrataError as error:
            return row | {"problem": error.message} | _noted((), path)
        if path.is_dir():
            row["size_bytes"] = list_files(path).size_bytes  # the summary may be stored now
    return row | vars(found) | _noted(found.tags, path)


def _noted(tags: tuple[str, ...], path: Path) -> dict[str, Any]:
    """Return the tags of a recording with those that were added later, and the note."""
    notes = readable_notes(path)
    return {"tags": tuple(dict.fromkeys([*tags, *notes.tags])), "note": notes.note or None}
