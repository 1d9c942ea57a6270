"""The tables of a run that grows: those of its finalised part, and what is new since.

The finalised part is the run's own Parquet, or a snapshot (see `growing.snapshot`). A look adds the
rows since the one before. A derived table that is computed by key is then computed again for
changed keys only, and its new rows replace those of these keys. Other tables are computed again as
a whole if their inputs have changed: they are small, or aggregate the whole run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import duckdb

from dask_strata.run.derived import STORED, Definition, definitions, with_dependencies
from dask_strata.run.duckdb_session import fetch
from dask_strata.run.growing.changes import Changes
from dask_strata.run.growing.rows import NEW, NewRows
from dask_strata.run.growing.sessions import IMPORTED, KeySession, Session, is_by_key, key_column
from dask_strata.run.key_ids import KEYS_TABLE
from dask_strata.run.own_tasks import BY_KEY, OTHERS_TABLE, TRANSITIONS
from dask_strata.run.stored.views import OWN_KEYS, ParquetViews
from dask_strata.run.workspace import Workspace
from dask_strata.schema import RECORDED
from dask_strata.store.key_texts import KEYS
from dask_strata.store.parquet import Part

if TYPE_CHECKING:
    import pyarrow as pa

#: Name of the rows of a derived table that replace those in the Parquet.
OVER = "_over_"

#: Derived tables that have rows only if the run has logs of Darshan, see `growth.Growth`.
_OF_DARSHAN = {"_io_attempts", "io_segments"}


class GrowingViews(ParquetViews):
    """The tables of a finalised part of a run and of its newer rows, as SQL.

    Parameters
    ----------
    part : Part
        The finalised part.
    offsets_ns : mapping of str to int
        Nanoseconds to add to the times of each process.
    only_own : bool, optional
        Whether the run has the tasks of one client only.

    Attributes
    ----------
    workspace : Workspace
        The database in which these queries work.
    processes : pyarrow.Table
        The whole table ``processes``, prepared for derived tables.
    """

    def __init__(self, part: Part, offsets_ns: Mapping[str, int], *, only_own: bool) -> None:
        super().__init__(part, offsets_ns, only_own=only_own)
        self.workspace = Workspace()
        self.processes: pa.Table = None
        self._connection = self.workspace.connection
        #: Look at which each derived table was computed last; those of the Parquet have none.
        self._fresh: dict[str, int] = {}
        #: Look at which each table changed last.
        self._changed: dict[str, int] = {}
        self._sessions: dict[tuple[int, str], Session] = {}
        self._n_old_keys = super().n_rows(KEYS)
        self._new = NewRows(self._connection, self._n_old_keys, super().keys)
        self.changes = Changes(self._connection, self, self._new)

    def close(self) -> None:
        """Close the files and the database."""
        self._end_sessions()
        super().close()
        self.workspace.close()

    def interrupt(self) -> None:
        """Interrupt `prepare` in another thread."""
        for session in list(self._sessions.values()):
            session.connection.interrupt()

    def look(
        self, new: Mapping[str, pa.Table], offsets_ns: Mapping[str, int], processes: pa.Table
    ) -> None:
        """Add new rows of recorded tables.

        Parameters
        ----------
        new : mapping of str to pyarrow.Table
            The rows of each table.
        offsets_ns : mapping of str to int
            Nanoseconds to add to the times of each process.
        processes : pyarrow.Table
            The whole table ``processes``, prepared for derived tables.
        """
        self._end_sessions()
        shifted = {p for p, _ in self.offsets_ns.items() ^ offsets_ns.items()}
        self.offsets_ns, self.processes = offsets_ns, processes
        self.changes.begin_look()
        for name in self._new.n if shifted else ():
            # The clock of a process is known better than before: all its rows have other times.
            self.changes.add(self._new.keys_of(name, shifted))
            self._changed[name] = self.changes.look
        for name, rows in new.items():
            if len(rows):
                self.changes.add(self._new.add(name, rows, self.part.rows.get(name) or 0))
                self._changed[name] = self.changes.look
        self.changes.end_look()

    def has_rows(self, name: str) -> bool:
        """Return whether a recorded table has rows."""
        return super().has_rows(name) or name in self._new.n

    def computed_at(self, name: str) -> int:
        """Return the look at which a derived table was computed last; 0 for the Parquet."""
        return self._fresh.get(name, 0)

    def in_parquet(self, name: str) -> bool:
        """Return whether the finalised part has rows of a recorded table, or a derived table."""
        return super().has_rows(name) if name in RECORDED else name in STORED and self.has(name)

    def has_new_rows(self, name: str) -> bool:
        """Return whether a recorded table has rows that are not in the Parquet."""
        return name in self._new.n

    def columns(self, name: str) -> set[str]:
        """Return the names of a table's columns."""
        found = set(super().columns(name)) if name == KEYS or self.in_parquet(name) else set()
        for table in (f"{NEW}{name}", f"{OVER}{name}"):
            with suppress(duckdb.CatalogException):
                found |= set(self._connection.table(table).columns)
        return found - {"file_row_number"}

    def scan(self, name: str, bucket: int | None = None) -> str:
        """Return what queries read a table from; of a derived one, as it was computed last."""
        if name == KEYS or name in RECORDED:
            old = self.old(name, bucket) if name == KEYS or self.in_parquet(name) else None
            new = f'"{NEW}{name}"' if name == KEYS or name in self._new.n else None
        else:
            old = self.old(name, bucket) if self.in_parquet(name) else None
            new = f'"{OVER}{name}"' if name in self._fresh else None
            if new is not None and not is_by_key(name):
                old = None
            elif old is not None and new is not None and self.changes.n_replaced:
                old = f'(from {old} p anti join "{self.changes.REPLACED}" using (key_id))'
        return f"({' union all by name '.join(f'from {each}' for each in (old, new) if each)})"

    def old(self, name: str, bucket: int | None = None) -> str:
        """Return what queries read a table from that is in Parquet, without newer rows."""
        return super().scan(name, bucket)

    def n_rows(self, name: str) -> int:
        """Return the number of rows of a table."""
        if name == KEYS:
            return self._new.n_keys
        if name in RECORDED:
            return (super().n_rows(name) if self.in_parquet(name) else 0) + self._new.n.get(name, 0)
        self.prepare([name])
        count = f"select count(*) as n from {self.scan(name)}"
        return int(fetch(self._connection, count).to_pylist()[0]["n"])

    def in_memory(self, queries: Iterable[str]) -> dict[str, pa.Table]:
        """Return the tables in memory that queries name, by name."""
        text = " ".join(queries)
        names = [f"{NEW}{name}" for name in (KEYS, *self._new.n)]
        names += [*(f"{OVER}{name}" for name in self._fresh), self.changes.REPLACED]
        return {
            name: fetch(self._connection, f'from "{name}"') for name in names if f'"{name}"' in text
        }

    def _of_all_clients(self) -> ParquetViews:
        self._everything = self._everything or _OfAllClients(self)
        return self._everything

    def prepare(self, names: Collection[str]) -> None:
        """Bring derived tables, and those that they depend on, up to date."""
        unchanged = {*IMPORTED, *_OF_DARSHAN}
        present = {name for name in names if name in STORED and self.has(name)}
        wanted = with_dependencies(present - unchanged, unchanged)
        if not wanted:
            return
        if self.only_own:  # whose keys decide which rows the other tables have
            for name in with_dependencies([OWN_KEYS]) & definitions().keys():
                self._refresh(definitions()[name])
        for name, definition in definitions().items():
            if name in wanted - unchanged:
                self._refresh(definition)

    def _refresh(self, definition: Definition) -> None:
        """Compute a derived table again, as far as it may have changed."""
        name, look = definition.name, self.changes.look
        kept = self.in_parquet(name)
        if is_by_key(name):
            since = self._fresh.get(name, 0)
            # Others are computed for changed keys where a kept table needs them.
            if since == look or not kept:
                return
            if self.changes.n_since(since):
                session = self._session(since, key_column(name))
                session.replace(definition)
                self._changed[name] = look
                self._fresh[name] = look
        else:
            since = self._fresh.get(name, 0 if kept else -1)
            inputs = definition.depends_on - {KEYS_TABLE}
            if since < 0 or any(self._changed_at(each) > since for each in inputs):
                self._session(-1).replace(definition)
                self._changed[name] = look
                self._fresh[name] = look
        if name in self._fresh:
            self._fresh[name] = look

    def _changed_at(self, name: str) -> int:
        """Return the look at which a table changed last."""
        if name == OTHERS_TABLE:
            name = TRANSITIONS
        found = self._changed.get(name, 0)
        if self.only_own and name in BY_KEY:  # which of its rows count depends on the own keys
            found = max(found, self._changed.get(OWN_KEYS, 0))
        return found

    def _session(self, since: int, column: str = "key_id") -> Session:
        """Return the session for the keys that changed since a look; -1 for all keys."""
        if (since, column) not in self._sessions:
            cursor = self._connection.cursor()
            made = Session(self, cursor) if since < 0 else KeySession(self, cursor, since, column)
            self._sessions[since, column] = made
        return self._sessions[since, column]

    def _end_sessions(self) -> None:
        for session in self._sessions.values():
            session.connection.close()
        self._sessions.clear()


class _OfAllClients(ParquetViews):
    """The same tables with the rows of all clients' tasks."""

    def __init__(self, views: GrowingViews) -> None:
        super().__init__(views.part, views.offsets_ns)
        self._views = views
        self.has_rows, self.columns, self.scan = views.has_rows, views.columns, views.scan  # type: ignore[method-assign]
