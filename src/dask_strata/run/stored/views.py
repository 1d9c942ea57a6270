"""Views of a finalised run's Parquet, as SQL: DuckDB reads only what a query needs, out of core.

The files are opened once, inside of the run's folder, and DuckDB gets their descriptors: it reads
the files that were verified, also if the run is finalised again meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from dask_strata.run.derived import STORED, definitions, versions
from dask_strata.run.duckdb_session import TIME_TYPE
from dask_strata.run.key_ids import KEYS_TABLE
from dask_strata.run.own_tasks import BY_KEY, OWN, TRANSITIONS, WITHOUT_KEY
from dask_strata.schema import RECORDED, TABLES
from dask_strata.schema.columns import Kind
from dask_strata.store.arrow import arrow_schema
from dask_strata.store.key_texts import KEYS, ROW, has_buckets, id_name
from dask_strata.store.limits import CELL_BYTES, Budget
from dask_strata.store.parquet import READ_ERRORS, Part, file_names, identity, verify
from dask_strata.store.safe_files import is_folder, open_inside

_TYPES: dict[Kind, str] = {
    "time": TIME_TYPE,
    "seconds": "double",
    "bytes": "bigint",
    "int": "bigint",
    "float": "double",
    "bool": "boolean",
    "text": "varchar",
    "long": "varchar",
    "intervals": f"struct(action varchar, start {TIME_TYPE}, stop {TIME_TYPE}, source varchar)[]",
}

#: Derived table with the keys of own tasks.
OWN_KEYS = "_own_keys"


class ParquetViews:
    """The tables of a finalised run, as SQL.

    Parameters
    ----------
    part : Part
        The run's Parquet, with ids of keys.
    offsets_ns : mapping of str to int
        Nanoseconds to add to the times of each process.
    derived : Part, optional
        Parquet with derived tables, whose own ones are used before those of the run.
    only_own : bool, optional
        Whether the run has the tasks of one client only; see `own_tasks`.
    imported : bool, optional
        Whether the run was imported; see `clock.align`.
    """

    def __init__(
        self,
        part: Part,
        offsets_ns: Mapping[str, int],
        derived: Part | None = None,
        *,
        only_own: bool = False,
        imported: bool = False,
    ) -> None:
        self.part, self.offsets_ns, self._derived = part, offsets_ns, derived
        self.only_own, self._imported = only_own, imported
        #: The same tables with the rows of all clients' tasks.
        self._everything: ParquetViews | None = None
        self._names: dict[str, list[str]] = {}
        self._files: dict[tuple[str, str], BinaryIO] = {}
        self._column_names: dict[tuple[str, str], set[str]] = {}
        #: Identities of the files of derived tables when their checksums were verified.
        self._verified: dict[str, tuple[tuple[int, ...], ...] | None] = {}
        self._valid: dict[str, bool] = {}

    def close(self) -> None:
        """Close the files."""
        if self._everything is not None:
            self._everything.close()
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._column_names.clear()

    def use(self, derived: Part) -> None:
        """Use the derived tables of this Parquet before those of the run."""
        self._derived = derived
        self._valid.clear()
        self._names.clear()
        self._column_names.clear()

    def has(self, name: str) -> bool:
        """Return whether a derived table is there, undamaged, by its present definition."""
        if name not in self._valid:
            part = self.part_with(name)
            found = part.derived.get(name)
            valid = found is not None and found.version == versions().get(name)
            if valid:
                try:
                    self._verified[name] = verify(part, name)
                except READ_ERRORS:
                    valid = False
            self._valid[name] = valid
        return self._valid[name]

    def stored(self) -> set[str]:
        """Return the names of the derived tables that are there; see `has`."""
        return {name for name in STORED if self.has(name)}

    def usable(self, names: Collection[str]) -> tuple[set[str], set[str]]:
        """Return the derived tables that some tables can be read or computed from.

        Parameters
        ----------
        names : collection of str
            Names of tables.

        Returns
        -------
        set of str
            Those that are there; only their files were verified.
        set of str
            Those that have to be computed although a finalised run has them.
        """
        found: set[str] = set()
        missing: set[str] = set()
        reached = set(names) & definitions().keys()
        while reached:
            name = reached.pop()
            if name in STORED and self.has(name):
                found.add(name)
                continue
            if name in STORED:
                missing.add(name)
            reached |= (definitions()[name].depends_on & definitions().keys()) - found - missing
        return found, missing

    def part_with(self, name: str) -> Part:
        """Return the Parquet that a table is read from."""
        if self._derived is None or name in RECORDED or name == KEYS:
            return self.part
        # Tables that are being computed are not in an index yet.
        computed = self._derived.run.joinpath(*self._derived.home, name)
        return self._derived if is_folder(computed) else self.part

    def _files_of(self, name: str) -> list[str]:
        if name not in self._names:
            self._names[name] = file_names(self.part_with(name), name)
        return self._names[name]

    def paths(self, name: str, bucket: int | None = None) -> list[str]:
        """Return the paths of a table's files, or of that of one bucket."""
        names = self._files_of(name)
        wanted = range(len(names)) if bucket is None else range(bucket, min(bucket + 1, len(names)))
        return [f"/dev/fd/{self._opened(name, i).fileno()}" for i in wanted]

    def _opened(self, name: str, i: int) -> BinaryIO:
        """Open a file of a table, which has to be the one that was verified."""
        part, file_name = self.part_with(name), self._names[name][i]
        path = "/".join((str(part.run), *part.home, name, file_name))
        file = self._files.get((name, path))
        if file is None:
            file = open_inside(part.run, *part.home, name, file_name)
            self._files[name, path] = file
            known = part.verified.get(name) or self._verified.get(name)
            if known is not None and known[i : i + 1] != (identity(file),):
                raise ValueError(f"{name} was replaced since the run was opened")
            _require_plausible(file)
        return file

    def scan(self, name: str, bucket: int | None = None) -> str:
        """Return what queries read a table from, as in its files."""
        files = ", ".join(f"'{path}'" for path in self.paths(name, bucket))
        is_numbered = name in RECORDED and not has_buckets(RECORDED[name])
        return f"read_parquet([{files}], file_row_number = {str(is_numbered).lower()})"

    def keys(self, ids: range | None = None) -> str:
        """Return the query for the table of keys, or of some of them."""
        where = "" if ids is None else f" where key_id between {ids.start} and {ids.stop - 1}"
        return f"select key_id as _key, key, key_type from {self.scan(KEYS)}{where}"  # noqa: S608

    def recorded(self, name: str, *, texts: bool, bucket: int | None = None) -> str:
        """Return the query for a recorded table, with aligned times.

        Parameters
        ----------
        name : str
            Name of the table.
        texts : bool
            Whether the query has the texts and types of keys; joining them takes time.
        bucket : int, optional
            Only the rows of the keys in this bucket.
        """
        table = RECORDED[name]
        if not self.has_rows(name):
            return self._without_rows(name)
        present = self.columns(name)
        times = {c.name for c in table.all_columns if c.kind == "time"}
        if self._imported:
            times &= {"time"}
        shifted = bool(self.offsets_ns and times)
        columns, joins = [], []
        for column in table.all_columns:
            if column.kind == "key":
                key = id_name(column.name)
                columns.append(f"r.{key} as _{column.name}")
                if texts:
                    alias = f"_{column.name}_texts"
                    joins.append(f"left join {KEYS_TABLE} {alias} on {alias}._key = r.{key}")
                    columns += [
                        f"{alias}.key as {column.name}",
                        f"{alias}.key_type as {column.name}_type",
                    ]
            elif column.name not in present:
                columns.append(f'null::{_TYPES[column.kind]} as "{column.name}"')
            elif shifted and column.name in times:
                columns.append(
                    f"case when o.ns is null then r.{column.name} else cast(make_timestamp_ns("
                    f"epoch_ns(r.{column.name}) + o.ns) as {TIME_TYPE}) end as {column.name}"
                )
            else:
                columns.append(f'r."{column.name}"')
        if shifted:
            joins.append(f"left join ({self.shifts()}) o on o.process = r.process")
        row = ROW if has_buckets(table) else "file_row_number"
        rows = self._own_rows(name, self.scan(name, bucket))
        found = f"select {', '.join(columns)}, r.{row} as _row from {rows} r "  # noqa: S608
        return self._prepared(name, found + " ".join(joins))

    def _own_rows(self, name: str, rows: str) -> str:
        """Return the rows of a table about own tasks and about no task, see `own_tasks`."""
        if not self.only_own or name not in BY_KEY or name in OWN or self._all_are_own():
            return rows
        is_own = f"key_id in (select key_id from {self.scan(OWN_KEYS)})"  # noqa: S608
        if name in WITHOUT_KEY:
            key = f"case when {is_own} then key_id end as key_id"
            return f"(select * replace ({key}) from {rows})"  # noqa: S608
        return f"(select * from {rows} where key_id is null or {is_own})"  # noqa: S608

    def _all_are_own(self) -> bool:
        """Return whether all keys are those of own tasks, so that no row is another client's."""
        return self.n_rows(KEYS) == self.n_rows(OWN_KEYS)

    def has_rows(self, name: str) -> bool:
        """Return whether a recorded table has rows."""
        return bool(self.part.rows.get(name))

    def columns(self, name: str) -> set[str]:
        """Return the names of a table's columns in its files."""
        path = self.paths(name, 0)[0]
        if (name, path) not in self._column_names:
            self._column_names[name, path] = set(pq.read_schema(path).names)
        return self._column_names[name, path]

    def n_rows(self, name: str) -> int:
        """Return the number of rows of a table, from the footers of its files."""
        return sum(int(pq.read_metadata(path).num_rows) for path in self.paths(name))

    def others(self) -> str:
        """Return the query for the transitions of other clients' tasks on workers."""
        query = self.recorded(TRANSITIONS, texts=True)
        if not self.only_own or not self.has_rows(TRANSITIONS) or self._all_are_own():
            return f"from ({query}) limit 0"
        is_own = f"_key in (select key_id from {self.scan(OWN_KEYS)})"  # noqa: S608
        query = self._of_all_clients().recorded(TRANSITIONS, texts=True)
        return f"from ({query}) where _key is not null and not {is_own}"

    def _of_all_clients(self) -> ParquetViews:
        """Return the same tables with the rows of all clients' tasks."""
        self._everything = self._everything or ParquetViews(
            self.part, self.offsets_ns, imported=self._imported
        )
        return self._everything

    def shifts(self) -> str:
        """Return the query for the nanoseconds to add to the times of each process."""
        if not self.offsets_ns:
            return "select null::text as process, null::bigint as ns where false"
        rows = ", ".join(
            f"({_quoted(process)}, {int(ns)})" for process, ns in sorted(self.offsets_ns.items())
        )
        return f"select * from (values {rows}) v(process, ns)"  # noqa: S608  quoted

    def _without_rows(self, name: str) -> str:
        columns = ["null::bigint as _row"]
        for column in RECORDED[name].all_columns:
            if column.kind == "key":
                columns.append(
                    f"null::int as _{column.name}, null::varchar as {column.name}, "
                    f"null::varchar as {column.name}_type"
                )
            else:
                columns.append(f'null::{_TYPES[column.kind]} as "{column.name}"')
        return f"select {', '.join(columns)} where false"

    def _prepared(self, name: str, query: str) -> str:
        """Return the query, with the names and counts of layers; see `run.prepare`."""
        if name == "graph_tasks" and self.has_rows("graph_layers"):
            layers = f"select layer from {self.scan('graph_layers')}"  # noqa: S608
            layer = f'case when "group" in ({layers}) then "group" end as layer'
            return f"select * replace ({layer}) from ({query})"  # noqa: S608
        if name == "graph_layers" and self.has_rows("graph_tasks"):
            return f"""
                select l.* replace (coalesce(l.n_tasks, s.n) as n_tasks)
                from ({query}) l left join (
                    select "group", min(n) as n from (
                        select submission, "group", count(*) as n
                        from {self.scan("graph_tasks")} group by submission, "group")
                    group by "group" having min(n) = max(n)) s on s."group" = l.layer
            """  # noqa: S608  names of the schema
        return query

    def derived(self, name: str, ids: range | None = None, bucket: int | None = None) -> str:
        """Return the query for a derived table.

        Parameters
        ----------
        name : str
            Name of the table.
        ids : range, optional
            Only the rows of keys with these ids.
        bucket : int, optional
            The bucket that has them.
        """
        columns = self.columns(name)
        in_buckets = bucket is not None and len(self._files_of(name)) > 1
        scan = self.scan(name, bucket if in_buckets else None)
        found = "* exclude (key_id), key_id as _key" if "key_id" in columns else "*"
        where = ""
        if ids is not None and not in_buckets:
            where = f" where key_id between {ids.start} and {ids.stop - 1}"
        return f"select {found} from {scan}{where}"  # noqa: S608

    def users(self, name: str, *, stored: bool) -> str:
        """Return the query for a table as users see it: its columns, with times in microseconds.

        Parameters
        ----------
        name : str
            Name of the table.
        stored : bool
            Whether it is a derived table.
        """
        query = self.derived(name) if stored else self.recorded(name, texts=True)
        columns = [
            f'"{field.name}"::timestamptz as "{field.name}"'
            if pa.types.is_timestamp(field.type)
            else f'"{field.name}"'
            for field in arrow_schema(TABLES[name])
        ]
        return f"select {', '.join(columns)} from ({query})"  # noqa: S608  names of the schema

    def prepare(self, names: Collection[str]) -> None:
        """Bring derived tables up to date before queries read them; those in Parquet always are."""

    def interrupt(self) -> None:
        """Interrupt `prepare` in another thread."""

    def in_memory(self, queries: Iterable[str]) -> dict[str, pa.Table]:  # noqa: ARG002
        """Return the tables in memory that queries name, by name."""
        return {}

    def opened(self) -> list[str]:
        """Return the paths of all files that queries so far read."""
        self.paths(KEYS)
        return [f"/dev/fd/{file.fileno()}" for file in self._files.values()]


def _require_plausible(file: BinaryIO) -> None:
    """Raise LimitExceededError if a file declares more rows than its size justifies."""
    budget = Budget()
    footer = pq.read_metadata(f"/dev/fd/{file.fileno()}")
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    budget.add_file(os.fstat(file.fileno()).st_blocks * 512)
    budget.spend(footer.num_rows * CELL_BYTES + sum(max(g.total_byte_size, 0) for g in groups))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
