"""Make a run from the CSV files of the Mofka-Dask coupler.

`docs/import.md` describes these files and their flaws. Each file is read once, block by block.
Transfers are buffered in a file first, because duplicates are found among all of them.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.errors import ImportedDataError, UsageError
from dask_strata.importers.mofka import rows as to_rows
from dask_strata.importers.mofka.columns import FIELDS, NAMES
from dask_strata.importers.mofka.graphs import GraphRows
from dask_strata.importers.mofka.literals import LiteralError, dependencies, keys
from dask_strata.importers.mofka.reader import CouplerReader
from dask_strata.importers.mofka.transfers import TransferBuffer, bounded_duckdb
from dask_strata.importers.results import Progress
from dask_strata.store.bulk_writer import BulkRun
from dask_strata.store.interruptible import interruptible
from dask_strata.store.manifest import Manifest, new_run_id

#: Id of the importing process in the run.
PROCESS = "import"

#: Rows that are collected before they are written.
_BATCH = 1 << 16


@dataclass(frozen=True)
class ImportedRun:
    """The run that an import made, and the counts of its rows.

    Attributes
    ----------
    path : Path
        The run's folder.
    rows : int
        Rows in the files.
    resent : int
        Duplicate transfers, which are counted once.
    set_aside : int
        Rows that could not be understood; they are in the run's folder `aside`.
    salvaged : int
        Damaged events that were restored.
    lost : int
        Damaged events that could not be restored.
    unreadable : tuple of str
        Files of which no row could be read, each with the reason.
    """

    path: Path
    rows: int
    resent: int
    set_aside: int
    salvaged: int
    lost: int
    unreadable: tuple[str, ...] = ()


def find_files(folder: Path) -> dict[str, Path]:
    """Return the coupler's files in a folder, by role (a key of `columns.NAMES`).

    Parameters
    ----------
    folder : Path
        The folder.

    Raises
    ------
    UsageError
        The folder does not exist.
    ImportedDataError
        The folder has none of the files, or two names of the same file.
    """
    if not folder.is_dir():
        reason = "is a file" if folder.exists() else "does not exist"
        raise UsageError(
            f"{folder} {reason}.", hint="Give the folder with the coupler's CSV files."
        )
    found: dict[str, Path] = {}
    for role, names in NAMES.items():
        present = [folder / name for name in names if os.path.lexists(folder / name)]
        for path in present:
            if path.exists() and not path.is_file():
                raise ImportedDataError(
                    f"{path} is no file.", hint="Remove it, or replace it with a file."
                )
        if len(present) > 1:
            raise ImportedDataError(
                f"{folder} has both {' and '.join(p.name for p in present)}.",
                hint="They are two names of the same file: remove one of them.",
            )
        if present:
            found[role] = present[0]
    if not found.keys() & FIELDS.keys():
        raise ImportedDataError(
            f"{folder} has none of the coupler's files.",
            hint="Expected some of: " + ", ".join(n for role in FIELDS for n in NAMES[role]),
        )
    return found


def import_files(  # noqa: PLR0913
    files: Mapping[str, Path],
    runs: Path,
    *,
    name: str,
    strict: bool = False,
    salvage: bool = True,
    progress: Progress | None = None,
    origin: str | None = None,
) -> ImportedRun:
    """Make a run from some of the coupler's files.

    Parameters
    ----------
    files : mapping of str to Path
        The files by role, see `find_files`.
    runs : Path
        Folder in which the run appears when it is complete.
    name : str
        Name of the run.
    strict : bool, optional
        Whether a row that cannot be understood ends the import without a run.
    salvage : bool, optional
        Whether to restore damaged events that lack only the last digits of their time.
    progress : Progress, optional
        Called with the bytes read so far and the bytes in total.
    origin : str, optional
        Address of the stream whose events the files have; by default the run names their folder.

    Raises
    ------
    ImportedDataError
        A file cannot be read; with `strict` also if a row cannot be understood.
    StrataError
        The run cannot be written.
    """
    run = BulkRun(runs)
    try:
        reader = CouplerReader(
            files, run, strict=strict, salvage=salvage, progress=progress or (lambda *_: None)
        )
        reader.origin = origin
        work = _Import(run, reader)
        work.read()
        return work.finish(name, next(iter(files.values())).parent)
    except OSError as error:
        raise ImportedDataError(
            f"{error.filename or runs}: {error.strerror or error}.",
            hint="No run was made. Check permissions and free space.",
        ) from error
    except (duckdb.Error, pa.ArrowException) as error:
        raise ImportedDataError(
            f"{next(iter(files.values())).parent} could not be imported: "
            f"{str(error).splitlines()[0]}",
            hint="No run was made.",
        ) from error
    finally:
        run.discard()


class _Import:
    """One import: reads the files and writes the run."""

    def __init__(self, run: BulkRun, reader: CouplerReader) -> None:
        self._run = run
        self._reader = reader
        self._started = time.time_ns()
        self._incoming = to_rows.IncomingTransfers()
        #: Addresses of the workers that some rows name differently.
        self._worker_addresses: dict[str, str] = {}
        #: By role, addresses or names of the processes that sent rows; None where a file has none.
        self._senders: dict[str, dict[str | None, None]] = {"scheduler": {}, "worker": {}}

    def read(self) -> None:
        """Read all files. Raises OSError."""
        self._read_transfers()
        for rows in self._reader.rows("scheduler_transition"):
            self._note_senders("scheduler", rows)
            self._run.write(
                "scheduler_transitions", to_rows.scheduler_transitions(rows, self._incoming)
            )
        for rows in self._reader.rows("worker_transition"):
            self._note_senders("worker", rows)
            self._run.write("worker_transitions", to_rows.worker_transitions(rows))
        for rows in self._reader.rows("worker"):
            self._run.write("worker_events", to_rows.worker_events(rows))
        for rows in self._reader.rows("client"):
            self._run.write("clients", to_rows.clients(rows))
        self._read_graphs()
        self._name_prefixes()

    def finish(self, name: str, folder: Path) -> ImportedRun:
        """Write the tables about the import, and complete the run under its name."""
        reader = self._reader
        self._run.write_rows("processes", list(self._processes()))
        for table, rows in (("losses", reader.losses(folder)), ("imports", reader.imports())):
            self._run.write_rows(table, [{"process": PROCESS, **row} for row in rows])
        path = self._run.finish(
            Manifest(
                run_id=new_run_id(),
                name=name,
                created_ns=self._started if reader.first_ns is None else reader.first_ns,
                version=version("dask-strata"),
                imported_from=reader.origin or str(folder.absolute()),
            )
        )
        counts = sum((source.counts for source in reader.sources.values()), Counter())
        return ImportedRun(
            path,
            counts["rows"],
            counts["resent"],
            counts["set_aside"],
            counts["salvaged"],
            sum(reader.lost.values()),
            tuple(f"{s.path.name} {s.problem}" for s in reader.sources.values() if s.problem),
        )

    def _note_senders(self, role: str, rows: pa.Table) -> None:
        if "called_from" in rows.column_names:
            self._senders[role].update(dict.fromkeys(pc.unique(rows["called_from"]).to_pylist()))
        else:
            self._senders[role][None] = None

    def _processes(self) -> Iterator[dict[str, Any]]:
        for role, names in self._senders.items():
            for name in names:
                address = self._worker_addresses.get(name or "", name)
                yield {
                    "process": role if name is None else f"{role}-{name}",
                    "role": role,
                    "address": address,
                    "name": None if name == address else name,
                    "host": _host(address),
                    "transport": "import",
                }
        yield {
            "process": PROCESS,
            "role": "imported",
            "start": self._started,
            "stop": time.time_ns(),
            "exit_reason": "complete",
            "transport": "import",
        }

    def _read_transfers(self) -> None:
        buffer = TransferBuffer(self._run.folder)
        buffer.fill(self._reader.rows("worker_transfer"))
        self._worker_addresses = buffer.addresses()
        for rows in buffer.numbered():
            self._note_senders("worker", rows)
            tables = to_rows.transfer_tables(rows)
            self._write(tables)
            self._note_transfers(tables)
        buffer.remove()

    def _note_transfers(self, tables: dict[str, pa.Table]) -> None:
        ends = tables["transfer_ends"]
        incoming = ends.filter(pc.equal(ends["end"], "incoming"))
        for worker, start, peer in zip(
            incoming["worker"].to_pylist(),
            incoming["start"].cast(pa.int64()).to_pylist(),
            incoming["peer"].to_pylist(),
            strict=True,
        ):
            self._incoming.add(self._worker_addresses.get(worker, worker), start, peer)
        self._reader.note_resent(tables["transfer_resends"]["file"])

    def _read_graphs(self) -> None:
        graphs = GraphRows()
        for block in self._reader.blocks("graph"):
            reasons = {}
            for row in _with_integer_times(block.table).to_pylist():
                try:
                    requested = keys(row["keys"]) if row.get("keys") else []
                    graphs.add(row, requested, dict(dependencies(row["dependencies"])))
                except LiteralError as error:
                    reasons[row["line"]] = str(error)
                if len(graphs) > _BATCH:
                    self._write(graphs.tables())
                    graphs = GraphRows()
            self._reader.refuse("graph", block, reasons)
        self._write(graphs.tables())

    def _write(self, tables: dict[str, pa.Table]) -> None:
        for table, rows in tables.items():
            self._run.write(table, rows)

    def _name_prefixes(self) -> None:
        """Derive the prefix of each key for which no row of the scheduler contains it."""
        others = self._run.files("worker_transitions", "transfer_end_keys", "graph_tasks")
        scheduler = self._run.files("scheduler_transitions")
        everywhere = [*others, *scheduler]
        if not everywhere:
            return
        from dask.utils import key_split

        query = "select distinct key, key_type from read_parquet($everywhere)"
        parameters = {"everywhere": everywhere}
        if scheduler:
            query += (
                " where key not in"
                " (select key from read_parquet($scheduler) where prefix is not null)"
            )
            parameters["scheduler"] = scheduler
        with bounded_duckdb(self._run.folder) as connection:
            reader = interruptible(
                connection, lambda: connection.sql(query, params=parameters).to_arrow_reader(_BATCH)
            )
            while (batch := interruptible(connection, lambda: next(reader, None))) is not None:
                rows = pa.Table.from_batches([batch])
                prefixes = [key_split(key) for key in rows["key"].to_pylist()]
                rows = rows.append_column("prefix", pa.array(prefixes, pa.string()))
                process = pa.array([PROCESS] * len(rows), pa.string())
                self._run.write("key_prefixes", rows.append_column("process", process))


def _with_integer_times(rows: pa.Table) -> pa.Table:
    """Return a table with integer times: `to_pylist` cannot convert nanoseconds without pandas."""
    index = rows.schema.get_field_index("time")
    if index < 0:
        return rows  # a file without this column has no usable row
    return rows.set_column(index, "time", rows["time"].cast(pa.int64()))


def _host(address: str | None) -> str | None:
    """Return the host of an address of Dask's, or None for a name of another form."""
    if address is None or "://" not in address:
        return None
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None
