"""A run from the CSV files of the Mofka-Dask coupler.

What these files are, and how they mislead, is in `docs/import.md`. Everything is read once,
block by block; only transfers are kept apart first, to tell the resent ones.
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
from dask_strata.importers.mofka import rows as to
from dask_strata.importers.mofka.columns import FIELDS, NAMES
from dask_strata.importers.mofka.graphs import Graphs
from dask_strata.importers.mofka.intake import Intake, Progress
from dask_strata.importers.mofka.literals import LiteralError, dependencies, keys
from dask_strata.importers.mofka.transfers import Waiting, bounded_duckdb
from dask_strata.store.bulk_writer import BulkRun
from dask_strata.store.manifest import Manifest, new_run_id

PROCESS = "import"

_BATCH = 1 << 16


@dataclass(frozen=True)
class Imported:
    """What was done: the run's folder, and how many rows went where.

    Attributes
    ----------
    path : Path
        The run.
    rows : int
        Rows in the files.
    resent : int
        Transfers that were told of again.
    set_aside : int
        Rows that could not be understood; they are in the run's folder `aside`.
    salvaged : int
        Damaged events that were put together again.
    lost : int
        Damaged events that could not be.
    unreadable : tuple of str
        Files of which nothing could be read, and why.
    """

    path: Path
    rows: int
    resent: int
    set_aside: int
    salvaged: int
    lost: int
    unreadable: tuple[str, ...] = ()


def find_files(folder: Path) -> dict[str, Path]:
    """Return the coupler's files in a folder, by role.

    Raises
    ------
    UsageError
        There is no such folder.
    ImportedDataError
        There is none of these files in it.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise UsageError(f"{folder} {what}.", hint="Give the folder with the coupler's CSV files.")
    found: dict[str, Path] = {}
    for role, names in NAMES.items():
        present = [folder / name for name in names if os.path.lexists(folder / name)]
        for path in present:
            if path.exists() and not path.is_file():
                raise ImportedDataError(
                    f"{path} is no file.", hint="Take it away, or give a file of that name."
                )
        if len(present) > 1:
            raise ImportedDataError(
                f"{folder} has both {' and '.join(p.name for p in present)}.",
                hint="They are two names of the same file: take one of them away.",
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
) -> Imported:
    """Make a run of some of the coupler's files.

    Parameters
    ----------
    files : mapping of str to Path
        The files by role, see `find_files`.
    runs : Path
        Folder that the run is to appear in, once it is whole.
    name : str
        Name of the run.
    strict : bool, optional
        Whether a row that cannot be understood ends the import; nothing is left then.
    salvage : bool, optional
        Whether damaged events are put together again where nothing but digits is missing.
    progress : callable, optional
        Called with the bytes that were read and those that there are.

    Raises
    ------
    ImportedDataError
        A file cannot be read; or a row cannot be understood, if `strict`.
    StrataError
        The run cannot be written.
    """
    run = BulkRun(runs)
    try:
        intake = Intake(
            files, run, strict=strict, salvage=salvage, progress=progress or (lambda *_: None)
        )
        work = _Import(run, intake)
        work.read()
        return work.finish(name, next(iter(files.values())).parent)
    except OSError as error:
        raise ImportedDataError(
            f"{error.filename or runs}: {error.strerror or error}.",
            hint="Nothing was made. Check permissions and free space.",
        ) from error
    except (duckdb.Error, pa.ArrowException) as error:
        raise ImportedDataError(
            f"{next(iter(files.values())).parent} could not be imported: "
            f"{str(error).splitlines()[0]}",
            hint="Nothing was made.",
        ) from error
    finally:
        run.discard()


class _Import:
    """One import: reads the files into the run."""

    def __init__(self, run: BulkRun, intake: Intake) -> None:
        self._run = run
        self._intake = intake
        self._started = time.time_ns()
        self._incoming = to.Incoming()
        self._names: dict[str, str] = {}
        self._addresses: dict[str, dict[str | None, None]] = {"scheduler": {}, "worker": {}}

    def read(self) -> None:
        """Read all files. Raises OSError."""
        self._read_transfers()
        for rows in self._intake.rows("scheduler_transition"):
            self._note("scheduler", rows)
            self._run.write("scheduler_transitions", to.scheduler_transitions(rows, self._incoming))
        for rows in self._intake.rows("worker_transition"):
            self._note("worker", rows)
            self._run.write("worker_transitions", to.worker_transitions(rows))
        for rows in self._intake.rows("worker"):
            self._run.write("worker_events", to.worker_events(rows))
        for rows in self._intake.rows("client"):
            self._run.write("clients", to.clients(rows))
        self._read_graphs()
        self._name_prefixes()

    def finish(self, name: str, folder: Path) -> Imported:
        """Write what there is to say about the import, and give the run its name."""
        intake = self._intake
        self._run.write_rows("processes", list(self._processes()))
        for table, rows in (("losses", intake.losses(folder)), ("imports", intake.imports())):
            self._run.write_rows(table, [{"process": PROCESS, **row} for row in rows])
        path = self._run.finish(
            Manifest(
                run=new_run_id(),
                name=name,
                created_ns=self._started if intake.first_ns is None else intake.first_ns,
                version=version("dask-strata"),
                imported_from=str(folder.absolute()),
            )
        )
        counts = sum((source.counts for source in intake.sources.values()), Counter())
        return Imported(
            path,
            counts["rows"],
            counts["resent"],
            counts["set_aside"],
            counts["salvaged"],
            sum(intake.lost.values()),
            tuple(f"{s.path.name} {s.trouble}" for s in intake.sources.values() if s.trouble),
        )

    def _note(self, role: str, rows: pa.Table) -> None:
        if "called_from" in rows.column_names:
            self._addresses[role].update(dict.fromkeys(pc.unique(rows["called_from"]).to_pylist()))
        else:
            self._addresses[role][None] = None

    def _processes(self) -> Iterator[dict[str, Any]]:
        for role, told in self._addresses.items():
            for name in told:
                address = self._names.get(name or "", name)
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
        waiting = Waiting(self._run.folder)
        waiting.fill(self._intake.rows("worker_transfer"))
        self._names = waiting.addresses()
        for rows in waiting.told_apart():
            self._note("worker", rows)
            tables = to.transfer_tables(rows)
            self._write(tables)
            self._note_transfers(tables)
        waiting.remove()

    def _note_transfers(self, tables: dict[str, pa.Table]) -> None:
        ends = tables["transfer_ends"]
        arrived = ends.filter(pc.equal(ends["end"], "incoming"))
        for worker, start, peer in zip(
            arrived["worker"].to_pylist(),
            arrived["start"].cast(pa.int64()).to_pylist(),
            arrived["peer"].to_pylist(),
            strict=True,
        ):
            self._incoming.add(self._names.get(worker, worker), start, peer)
        self._intake.note_resent(tables["transfer_resends"]["file"])

    def _read_graphs(self) -> None:
        graphs = Graphs()
        for block in self._intake.blocks("graph"):
            reasons = {}
            for row in _with_integer_times(block.table).to_pylist():
                try:
                    wanted = keys(row["keys"]) if row.get("keys") else []
                    graphs.add(row, wanted, dict(dependencies(row["dependencies"])))
                except LiteralError as error:
                    reasons[row["line"]] = str(error)
                if len(graphs) > _BATCH:
                    self._write(graphs.tables())
                    graphs = Graphs()
            self._intake.refuse("graph", block, reasons)
        self._write(graphs.tables())

    def _write(self, tables: dict[str, pa.Table]) -> None:
        for table, rows in tables.items():
            self._run.write(table, rows)

    def _name_prefixes(self) -> None:
        """Work out the prefix of each key that no row of the scheduler names it of."""
        seen = self._run.files("worker_transitions", "transfer_end_keys", "graph_tasks")
        told = self._run.files("scheduler_transitions")
        everywhere = [*seen, *told]
        if not everywhere:
            return
        from dask.utils import key_split

        query = "select distinct key, key_type from read_parquet($everywhere)"
        if told:
            query += (
                " where key not in (select key from read_parquet($told) where prefix is not null)"
            )
        parameters = {"everywhere": everywhere} | ({"told": told} if told else {})
        with bounded_duckdb(self._run.folder) as connection:
            for batch in connection.sql(query, params=parameters).to_arrow_reader(_BATCH):
                rows = pa.Table.from_batches([batch])
                prefixes = [key_split(key) for key in rows["key"].to_pylist()]
                rows = rows.append_column("prefix", pa.array(prefixes, pa.string()))
                process = pa.array([PROCESS] * len(rows), pa.string())
                self._run.write("key_prefixes", rows.append_column("process", process))


def _with_integer_times(rows: pa.Table) -> pa.Table:
    """Return a table that Python can be given: it has no times with nanoseconds."""
    index = rows.schema.get_field_index("time")
    if index < 0:
        return rows  # without any row, because that column is missing
    return rows.set_column(index, "time", rows["time"].cast(pa.int64()))


def _host(address: str | None) -> str | None:
    """Return the host of an address of Dask's; null if it is another name."""
    if address is None or "://" not in address:
        return None
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None
