"""A copy of a run without facts that are left out afterwards, as if they had not been recorded."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from dask_strata.errors import StrataError, UncomputableError
from dask_strata.export.replaced_rows import ReplacedRows
from dask_strata.run import Run
from dask_strata.run.finalise import derive_all
from dask_strata.schema import RECORDED
from dask_strata.store.compact import write_snapshot
from dask_strata.store.finalise.tables import part_name
from dask_strata.store.index import Derived, Index, index_bytes, read_index
from dask_strata.store.key_texts import KEYS
from dask_strata.store.manifest import INDEX, PARQUET
from dask_strata.store.on_demand import divide
from dask_strata.store.parquet import Part, open_part, stored_files
from dask_strata.store.parquet_writer import parquet_options
from dask_strata.store.reader import Record
from dask_strata.store.safe_files import checksum
from dask_strata.store.segments.read import Segment

#: Compression level of a copy, which is read once or twice.
_LEVEL = 1

#: Rows from which derived tables are computed once, in limited memory; those of smaller runs are
#: computed when they are read.
_MANY_ROWS = 1 << 17

#: Memory of derived tables at first: the export that follows needs some, too.
_MEMORY = 192 << 20

#: Host in an address of Dask.
_HOST = re.compile(r"\w+://(\[[^\]\s]*\]|[^\s:/]+)")


@contextmanager
def without(run: Run, classes: Collection[str]) -> Iterator[Run]:
    """Yield a copy of a run without some classes of facts.

    The rows of the copy went through the replacements that the recorder makes before it writes
    them. Its derived tables are computed from these rows. The copy is in a temporary folder, which
    is removed at the end of the context; the run is not changed.

    Parameters
    ----------
    run : Run
        The run.
    classes : collection of str
        The classes, as in the setting ``leave-out``: ``code``, ``paths``, ``hosts``, ``users``,
        ``errors``, ``environment``, ``arguments``.

    Yields
    ------
    Run
        The copy, of the same class, of the same client, and aligned like the run. Without any
        classes, the run itself.

    Raises
    ------
    StrataError
        The run cannot be read, or the temporary folder cannot be written.
    """
    if not classes:
        yield run
        return
    try:
        temporary = tempfile.TemporaryDirectory(prefix="dask-strata-", ignore_cleanup_errors=True)
    except OSError as error:
        raise StrataError(
            f"No temporary folder can be written: {error.strerror or error}.",
            hint="Set TMPDIR to a folder with enough room for a copy of the run.",
        ) from error
    with temporary as folder:
        rows = ReplacedRows(classes, _names(run.record))
        copy = Path(folder) / "run"
        try:
            _write_copy(run, copy, rows)
        except OSError as error:
            raise StrataError(
                f"{folder} cannot be written: {error.strerror or error}.",
                hint="Set TMPDIR to a folder with enough room for a copy of the run.",
            ) from error
        client = None if run.client is None else str(rows.facts.text(run.client))
        found = type(run)(copy, align=run.align, client=client)
        found.location = run.path.name if "paths" in classes else run.location
        found.sql_memory_limit, found.sql_limits = run.sql_memory_limit, run.sql_limits
        try:
            yield found
        finally:
            found._close_files()  # noqa: SLF001  they are open in a folder that is removed


def _names(record: Record) -> dict[str, str]:
    """Return the hosts and users that the record names: ``host`` or ``user`` by name."""
    found: dict[str, str] = {}
    processes = record.tables.columns("processes", ["host", "address"])
    facts = record.tables.columns("job", ["name", "value"]).to_pylist()
    for row in processes.to_pylist():
        address = _HOST.match(row["address"] or "")
        found |= dict.fromkeys(filter(None, (row["host"], address and address[1])), "host")
    found |= {row["value"]: "host" for row in facts if row["name"] == "host.name" and row["value"]}
    found |= {s.host: "host" for s in record.segments if s.host}
    found |= {
        row["value"]: "user" for row in facts if row["name"] == "process.user" and row["value"]
    }
    return {name: kind for name, kind in found.items() if not name.isdecimal()}


def _write_copy(run: Run, copy: Path, rows: ReplacedRows) -> None:
    """Write a copy of a run as a finalised run."""
    part, segments = _finalised(run, copy.with_name("all"))
    manifest = run.manifest
    facts = rows.facts
    path = facts.rule("file_opens", "uri") or facts.text
    origin = manifest.imported_from
    replace(
        manifest,
        scheduler=facts.facts(manifest.scheduler),
        imported_from=None if origin is None else str(path(origin)),
        only_client=facts.text(manifest.only_client),
    ).write(copy)
    home = copy / PARQUET
    home.mkdir()
    n_rows: dict[str, int] = {}
    checksums: dict[str, tuple[int, ...]] = {}
    for name in (KEYS, *(name for name in RECORDED if part.rows.get(name))):
        n, sums = _write_table(part, name, home / name, rows)
        if name == KEYS or n:
            checksums[name] = sums
        if name != KEYS and n:
            n_rows[name] = n
    shutil.rmtree(copy.with_name("all"), ignore_errors=True)
    index = Index(
        n_rows,
        [_segment(each, rows) for each in segments],
        checksums=checksums,
        run_id=manifest.run_id,
        keys_per_bucket=part.keys_per_bucket,
    )
    (home / INDEX).write_bytes(index_bytes(index))
    if sum(n_rows.values()) < _MANY_ROWS:
        return
    derived = _derive(open_part(copy, manifest.run_id, "Parquet", PARQUET))
    if derived:
        checksums.update({name: sums for name, (_, sums) in derived.items()})
        whole = replace(
            index,
            checksums=checksums,
            derived={name: each for name, (each, _) in derived.items()},
        )
        (home / INDEX).write_bytes(index_bytes(whole))


def _finalised(run: Run, temporary: Path) -> tuple[Part, list[Segment]]:
    """Return the Parquet of a finalised run; that of another run is written first."""
    record = run.record
    part = record.tables.finalised()
    if part is not None:
        return part, record.segments
    run.manifest.write(temporary)
    if not write_snapshot(run.path, temporary, None, partial=True):
        raise StrataError(f"{run.location} could not be copied.", hint="Try again.")
    part, unread = divide(open_part(temporary, run.manifest.run_id, "Parquet", PARQUET))
    if unread.rows or unread.damages:
        raise StrataError(f"The copy of {run.location} cannot be read.", hint="Try again.")
    return part, read_index(temporary, PARQUET).segments


def _write_table(
    part: Part, name: str, folder: Path, rows: ReplacedRows
) -> tuple[int, tuple[int, ...]]:
    """Write a table with facts replaced; return the number of its rows, and checksums."""
    n, sums = 0, []
    folder.mkdir()
    for bucket, (schema, groups) in enumerate(stored_files(part, name)):
        path = folder / part_name(bucket)
        options = parquet_options(schema, _LEVEL)
        if name == KEYS:
            options["use_dictionary"] = ["key_type"]
            options["column_encoding"]["key"] = "DELTA_BYTE_ARRAY"
        with pq.ParquetWriter(path, schema, **options) as writer:
            for group in rows.of(name, groups):
                writer.write_table(group)
                n += len(group)
        with path.open("rb") as file:
            sums.append(checksum(file))
    if name != KEYS and not n:
        shutil.rmtree(folder)
    return n, tuple(sums)


def _segment(segment: Segment, rows: ReplacedRows) -> Segment:
    """Return the state of a segment with facts replaced."""
    facts = rows.facts.facts({**segment.header, "host": segment.header.get("host")})
    return replace(
        segment,
        header={name: fact for name, fact in facts.items() if fact is not None},
        host=rows.facts.facts({"host": segment.host})["host"],
        end_reason=rows.facts.text(segment.end_reason),
        damages=[str(rows.facts.text(each)) for each in segment.damages],
    )


def _derive(part: Part) -> dict[str, tuple[Derived, tuple[int, ...]]]:
    """Compute the derived tables of the copy; those that cannot be are computed when read."""
    try:
        found = derive_all(part, memory_bytes=_MEMORY)
    except UncomputableError:
        for each in part.run.joinpath(*part.home).iterdir():
            if each.is_dir() and each.name not in {KEYS, *part.rows}:
                shutil.rmtree(each)
        return {}
    return {name: (each.derived, each.checksums) for name, each in found.items()}
