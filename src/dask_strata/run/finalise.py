"""Finalise a run: its recorded and its derived tables as Parquet.

Derived tables are computed in stages. In a stage of buckets, tables are computed for the keys of
one bucket after the other, so that the memory does not grow with the run. In the stages between,
tables are computed that need rows of all keys: DuckDB reads only some columns, out of core.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dask_strata.errors import UncomputableError
from dask_strata.run.clock import align, clock_offsets
from dask_strata.run.derived import STORED, Definition, definitions, versions, with_dependencies
from dask_strata.run.duckdb_session import execute, register
from dask_strata.run.key_ids import KEYS_TABLE
from dask_strata.run.own_tasks import OTHERS_TABLE
from dask_strata.run.prepare import merge_processes
from dask_strata.run.query_tables import mentions_keys
from dask_strata.run.stored.cache import forget
from dask_strata.run.stored.views import OWN_KEYS, ParquetViews
from dask_strata.run.workspace import WORKING_BYTES, Workspace
from dask_strata.schema import RECORDED
from dask_strata.store.arrow import arrow_schema
from dask_strata.store.compact import Compaction, DerivedFiles, compact
from dask_strata.store.finalise.spool import KEYS_PER_BUCKET
from dask_strata.store.finalise.tables import part_name
from dask_strata.store.index import Derived
from dask_strata.store.key_texts import KEYS
from dask_strata.store.limits import Budget
from dask_strata.store.manifest import Manifest
from dask_strata.store.parquet import Part, add_to_budget, read_table
from dask_strata.store.safe_files import checksum

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows of a row group of a derived table: questions about a key or prefix skip whole groups.
_ROWS_PER_GROUP = 1 << 15

#: Tables that are prepared in memory; they have a row or two for each process.
_IN_MEMORY = "processes"


def finalise(
    folder: Path,
    progress: Callable[[str], None] = lambda _: None,
    keys_per_bucket: int = KEYS_PER_BUCKET,
    run_buckets: RunBuckets | None = None,
) -> Compaction:
    """Write the recorded and the derived tables of a run as Parquet; see `store.compact.compact`.

    Parameters
    ----------
    folder : Path
        The run's folder.
    progress : callable, optional
        Called with the name of each table before it is written.
    keys_per_bucket : int, optional
        Number of keys whose rows are computed at a time.
    run_buckets : callable, optional
        Computes the stages of buckets; by default this process does, one bucket after the other.

    Raises
    ------
    NotARunError, NewerRunError, StrataError
        As `store.compact.compact` raises them.
    """
    problems: list[str] = []

    def derive(part: Part) -> Mapping[str, DerivedFiles]:
        try:
            return derive_all(part, progress, run_buckets=run_buckets or run_here)
        except UncomputableError as error:
            # The recorded rows are written all the same: they are what must not be lost.
            problems.append(error.message)
            new = part.run.joinpath(*part.home)
            for each in new.iterdir():
                if each.is_dir() and each.name not in {KEYS, *part.rows}:
                    shutil.rmtree(each)
            return {}

    done = compact(folder, progress, derive, keys_per_bucket)
    forget(folder)
    return replace(done, problem=problems[0]) if problems else done


@dataclass(frozen=True)
class Stage:
    """Definitions that are computed together.

    Attributes
    ----------
    in_buckets : bool
        Whether they are computed for the keys of one bucket after the other.
    definitions : tuple of Definition
        The definitions, each after its dependencies.
    written : frozenset of str
        Those that answers or later stages read.
    """

    in_buckets: bool
    definitions: tuple[Definition, ...]
    written: frozenset[str]


def stages(wanted: Collection[str] = STORED, given: Collection[str] = ()) -> list[Stage]:
    """Return the stages that compute some derived tables, in their order.

    Parameters
    ----------
    wanted : collection of str, optional
        Names of the tables.
    given : collection of str, optional
        Names of derived tables that are there already.
    """
    first = [OWN_KEYS] if OWN_KEYS in wanted else []  # views of the other tables use it
    rest = set(wanted) - set(first)
    return [*_stages(first), *_stages(rest, {*given, *first})]


def _stages(wanted: Collection[str], given: Collection[str] = ()) -> list[Stage]:
    needed = with_dependencies(wanted, given) - set(given)
    found = {name: d for name, d in definitions().items() if name in needed}
    place: dict[str, int] = {}
    for name, each in found.items():
        in_buckets = bool(each.by_key)
        at = int(in_buckets)  # odd stages are in buckets
        for other in each.depends_on & place.keys():
            whole = place[other] % 2 == 0
            same = in_buckets != whole and (not in_buckets or other in each.by_key)
            at = max(at, place[other] + (0 if same else 2 if in_buckets != whole else 1))
        place[name] = at
    made = []
    for at in range(max(place.values(), default=-1) + 1):
        inside = tuple(each for name, each in found.items() if place[name] == at)
        later = {
            other for name, each in found.items() if place[name] > at for other in each.depends_on
        }
        names = frozenset(each.name for each in inside)
        if inside:
            made.append(Stage(bool(at % 2), inside, names & (later | set(wanted))))
    return made


def derive_all(  # noqa: PLR0913
    part: Part,
    progress: Callable[[str], None] = lambda _: None,
    *,
    wanted: Collection[str] = STORED,
    given: Collection[str] = (),
    folder: Path | None = None,
    run_buckets: RunBuckets | None = None,
    memory_bytes: int = WORKING_BYTES,
) -> dict[str, DerivedFiles]:
    """Compute derived tables of a finalised run, and write them as Parquet.

    Parameters
    ----------
    part : Part
        The run's Parquet, which has its recorded tables.
    progress : callable, optional
        Called with the name of each table before it is computed.
    wanted : collection of str, optional
        Names of the tables; all that a finalised run has by default.
    given : collection of str, optional
        Names of derived tables that are there already.
    folder : Path, optional
        Where they are written; by default beside the recorded tables.
    run_buckets : callable, optional
        Computes the stages of buckets; by default in this process.
    memory_bytes : int, optional
        Memory of a stage, which is doubled where it does not suffice.
    """
    computation = Computation(part, folder, memory_bytes=memory_bytes)
    if computation.has_early_outcomes():
        return {}
    computation.require_order()
    rows: dict[str, int] = {}
    found: dict[str, tuple[int, ...]] = {}
    for stage in stages(wanted, given):
        for name in sorted(stage.written):
            progress(name)
            (computation.folder / name).mkdir()
        if stage.in_buckets:
            written = [files for _, files in sorted((run_buckets or run_here)(computation, stage))]
        else:
            written = [computation.run(stage, 0)]
        for files in written:
            for name, (n, crc) in files.items():
                rows[name] = rows.get(name, 0) + n
                found[name] = (*found.get(name, ()), crc)
    for name in found.keys() - set(wanted):
        shutil.rmtree(computation.folder / name)
    return {
        name: DerivedFiles(Derived(rows[name], versions()[name]), found[name])
        for name in sorted(found.keys() & set(wanted))
    }


#: Rows and checksum of each file that a stage wrote for one bucket, by table.
Files = dict[str, tuple[int, int]]


class Computation:
    """Computes derived tables from Parquet, and writes them as Parquet.

    Parameters
    ----------
    part : Part
        The run's Parquet.
    folder : Path, optional
        Folder of the derived tables; by default that of the recorded ones.
    output : Path, optional
        Folder with a folder for each table, to write to; by default that of the derived tables.
    threads : int, optional
        Threads of a query; one for each core by default.
    memory_bytes : int, optional
        Memory of a stage, which is doubled where it does not suffice.

    Attributes
    ----------
    part : Part
        The run's Parquet.
    keys_per_bucket : int
        Number of keys of a bucket.
    n_buckets : int
        Number of buckets.
    """

    def __init__(
        self,
        part: Part,
        folder: Path | None = None,
        output: Path | None = None,
        threads: int | None = None,
        *,
        memory_bytes: int = WORKING_BYTES,
    ) -> None:
        self.part, self.keys_per_bucket, self._threads = part, part.keys_per_bucket, threads
        self._memory_bytes = memory_bytes
        self.folder = part.run.joinpath(*part.home) if folder is None else folder
        self._output = self.folder if output is None else output
        manifest = Manifest.read(part.run)
        self._only_own = manifest.only_client is not None
        self._imported = manifest.imported_from is not None
        #: Where the views find derived tables.
        self._computed = replace(part, run=self.folder.parent, home=(self.folder.name,))
        processes = merge_processes(self._read("processes"))
        self._offsets = clock_offsets(processes, self._read("clock_offsets"))
        self._processes = align(processes, self._offsets, imported=self._imported)
        with closing(ParquetViews(part, {})) as views:
            n_keys = views.n_rows(KEYS)
        self.n_buckets = max(1, -(-n_keys // self.keys_per_bucket))

    def _read(self, name: str) -> pa.Table:
        budget = Budget()
        add_to_budget(self.part, budget)
        if not self.part.rows.get(name):
            return arrow_schema(RECORDED[name]).empty_table()
        return read_table(self.part, name, budget)[0]

    def has_early_outcomes(self) -> bool:
        """Return whether outcomes have to be mended on reading, see `prepare.mark_rescheduled`."""
        with closing(ParquetViews(self.part, {})) as views, closing(Workspace()) as workspace:
            executions = views.recorded("executions", texts=False)
            workspace.view("executions", executions)
            found = workspace.fetch(
                "select 1 from executions where outcome = 'erred' "
                "and starts_with(exception, 'Reschedule(') limit 1"
            )
        return len(found) > 0

    def require_order(self) -> None:
        """Raise UncomputableError if transitions of an imported scheduler get another order.

        They are stored in the order of time, and the offset of a process may change that order.
        """
        names = self._processes.select(["process", "role"]).to_pylist()
        schedulers = {p["process"] for p in names if p["role"] == "scheduler"}
        if self._imported and (shifted := sorted(schedulers & self._offsets.keys())):
            raise UncomputableError(
                f"the clock of {shifted[0]} is shifted, which may change the order of its "
                "transitions.",
                hint="Derived tables are computed by each question instead.",
            )

    def _views(self, stage: Stage) -> ParquetViews:
        only_own = self._only_own and OWN_KEYS not in stage.written
        return ParquetViews(
            self.part,
            self._offsets,
            self._computed,
            only_own=only_own,
            imported=self._imported,
        )

    def run(self, stage: Stage, bucket: int) -> Files:
        """Compute a stage for one bucket; return the rows and the checksum of each written file.

        Parameters
        ----------
        stage : Stage
            The stage.
        bucket : int
            Number of the bucket; 0 of a stage that is not in buckets.
        """
        written = {}
        with (
            closing(self._views(stage)) as views,
            closing(Workspace(self._memory_bytes)) as workspace,
        ):
            if self._threads is not None:
                execute(workspace.connection, "set threads = ?", self._threads)
            register(workspace.connection, "processes", self._processes)
            if stage.in_buckets:
                ids = range(bucket * self.keys_per_bucket, (bucket + 1) * self.keys_per_bucket)
                workspace.table(KEYS_TABLE, views.keys(ids))
            else:
                workspace.view(KEYS_TABLE, views.keys())
            inside = {each.name for each in stage.definitions}
            #: Queries of the views so far: definitions have inputs in common.
            added: dict[str, str] = {}
            for each in stage.definitions:
                for name, query in self._inputs(views, each, inside, bucket):
                    if added.get(name) != query:
                        workspace.view(name, query)
                        added[name] = query
                workspace.table(each.name, each.sql)
                if each.name in stage.written:
                    path = self._output / each.name / part_name(bucket)
                    n = workspace.write(each.name, path, each.order, _ROWS_PER_GROUP)
                    with path.open("rb") as file:
                        written[each.name] = n, checksum(file)
        return written

    def _inputs(
        self, views: ParquetViews, definition: Definition, inside: set[str], bucket: int
    ) -> Iterator[tuple[str, str]]:
        """Yield the tables that a definition reads, and their queries, of a bucket or all keys."""
        texts = mentions_keys(definition.sql)
        ids = range(bucket * self.keys_per_bucket, (bucket + 1) * self.keys_per_bucket)
        for name in sorted(definition.depends_on - inside - {KEYS_TABLE, _IN_MEMORY}):
            is_part = self.n_buckets > 1 and name in definition.by_key
            only = bucket if is_part else None
            if name == OTHERS_TABLE:
                query = views.others()
            elif name in RECORDED:
                query = views.recorded(name, texts=texts, bucket=only)
            else:
                query = views.derived(name, ids if is_part else None, only)
            yield name, query


#: Computes a stage for each bucket, in any order: yields the numbers of buckets with their files.
RunBuckets = Callable[[Computation, Stage], Iterable[tuple[int, Files]]]


def run_here(computation: Computation, stage: Stage) -> Iterator[tuple[int, Files]]:
    """Compute a stage in this process, one bucket after the other."""
    for bucket in range(computation.n_buckets):
        yield bucket, computation.run(stage, bucket)
