"""Compare the tables of a finalised run with those that are derived from its segments."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa

from dask_strata import Run, open_run
from dask_strata.run.derived import STORED, definitions
from dask_strata.run.finalise import finalise
from dask_strata.schema import RECORDED, TABLES


def plain(table: pa.Table) -> list[str]:
    """Return the rows as text, in an order of their own; parts of a second are rounded."""
    times = [f.with_type(pa.int64()) if pa.types.is_timestamp(f.type) else f for f in table.schema]
    rows = table.cast(pa.schema(times)).to_pylist()
    return sorted(
        repr([(k, round(v, 6) if isinstance(v, float) else v) for k, v in row.items()])
        for row in rows
    )


def differences(finalised: Path, segments: Path) -> list[str]:
    """Return the tables whose rows, schema or order differ, each as a sentence."""
    now, then = open_run(finalised), open_run(segments)
    found = [f"{name} is not stored" for name in sorted(STORED - now._stored)]
    for name in TABLES:
        rows, expected = now[name].to_arrow(), then[name].to_arrow()
        if not rows.schema.equals(expected.schema, check_metadata=True):
            found.append(f"the schema of {name} differs")
        elif plain(rows) != plain(expected):
            more = set(plain(rows)) ^ set(plain(expected))
            found.append(f"{name} has other rows: {sorted(more)[:2]}")
        by = None if name in RECORDED else definitions()[name].order
        keys = [c for c in ("attempt", "start", "seq", "process") if c in rows.schema.names]
        in_order = name in RECORDED or by is not None
        if in_order and rows.select(keys).to_pylist() != expected.select(keys).to_pylist():
            found.append(f"{name} has another order")
    for name in sorted(STORED - TABLES.keys()):
        rows, expected = internal(now, name), internal(then, name)
        if rows != expected:
            found.append(f"{name} has other rows: {sorted(set(rows) ^ set(expected))[:2]}")
    return found


def internal(run: Run, name: str) -> list[str]:
    """Return the rows of an internal table, with texts and types in place of ids of keys."""
    columns = [row["column_name"] for row in run.rows(f'describe "{name}"')]
    # Positions of rows in a table, and numbers that executions have in their bucket only.
    arbitrary = {"_row", "_number", *(["number"] if name == "_worker_executions" else [])}
    wanted = [f't."{column}"' for column in columns if column not in arbitrary]
    if "_key" not in columns:
        return plain(run.arrow(f'select {", ".join(wanted)} from "{name}" t'))
    wanted.remove('t."_key"')
    wanted += ["k.key as text_of_key", "k.key_type as type_of_key"]
    return plain(
        run.arrow(f'select {", ".join(wanted)} from "{name}" t left join _keys k using (_key)')
    )


def finalised_differences(run: Path, scratch: Path, keys_per_bucket: int) -> list[str]:
    """Finalise a copy of a run in buckets; return how its tables differ from the run's."""
    copy = Path(shutil.copytree(run, scratch / f"finalised-{keys_per_bucket}"))
    finalise(copy, keys_per_bucket=keys_per_bucket)
    return differences(copy, run)
