"""Recorded tables of a run that are read from Parquet on demand.

Of a recorded run, only Parquet whose checksum was verified is read on demand. Parquet without a
checksum is read when the run is opened (see `reader`), so that a damaged table is known, and
reported, before anything uses it. Of an imported run that is not finalised, a table is verified
when it is first read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from dask_strata.errors import StrataError
from dask_strata.schema import RECORDED
from dask_strata.store.arrow import arrow_schema
from dask_strata.store.key_texts import KEYS, key_columns
from dask_strata.store.limits import Budget
from dask_strata.store.manifest import Manifest
from dask_strata.store.parquet import (
    READ_ERRORS,
    ChangedError,
    Part,
    ReplacedError,
    add_to_budget,
    joined,
    read_row_groups,
    read_table,
    schema_of,
    unreadable,
    verify,
)


def divide(part: Part) -> tuple[Part, Part]:
    """Divide a part into tables that are read on demand, and those that are read at once.

    Compaction reads its Parquet back before it writes the checksums. A file that matches them
    can therefore be read on demand. A file that differs from them is a damage, and never read.

    Parameters
    ----------
    part : Part
        The part, as `open_part` returns it.

    Returns
    -------
    Part
        Tables that match their checksums, with the identities of their files.
    Part
        Tables without a checksum, and all damages.
    """
    verified = {}
    unverified = {}
    damages = list(part.damages)
    without_keys = None
    if part.keys is not None:
        try:
            if (found := verify(part, KEYS)) is not None:
                verified[KEYS] = found
        except READ_ERRORS as error:
            without_keys = unreadable(error)
            damages.append((KEYS, None, without_keys))
    for name in [name for name in RECORDED if name in part.rows]:
        try:
            if without_keys is not None and key_columns(RECORDED[name]):
                raise ChangedError(f"the table of {KEYS} cannot be read: {without_keys}")
            found = verify(part, name)
        except READ_ERRORS as error:
            damages.append((name, part.rows[name], unreadable(error)))
            continue
        if found is None:
            unverified[name] = part.rows[name]
        else:
            verified[name] = found
    rows = {name: part.rows[name] for name in verified if name != KEYS}
    return (
        replace(part, rows=rows, damages=(), verified=verified),
        replace(part, rows=unverified, damages=tuple(damages)),
    )


def _damage(part: Part, name: str) -> str | None:
    """Return why a table does not match its checksums; None if it does."""
    try:
        verify(part, name)
    except READ_ERRORS as error:
        return unreadable(error)
    return None


def damaged_derived(part: Part) -> dict[str, str]:
    """Return the derived tables that do not match their checksums, with the reason."""
    found = {name: _damage(part, name) for name in part.derived}
    return {name: reason for name, reason in found.items() if reason is not None}


def _is_transient(error: BaseException) -> bool:
    """Return whether reading may succeed later, so that the table must not count as empty."""
    # Arrow raises a plain OSError without errno for a damaged file: that is permanent.
    by_arrow = type(error) is OSError and error.errno is None
    return isinstance(error, (OSError, MemoryError)) and not by_arrow


class Tables(Mapping[str, pa.Table]):
    """The recorded tables of a run; those in Parquet are read each time they are accessed.

    Parameters
    ----------
    run : Path
        The run's folder.
    parts : sequence of Part
        Parquet that is read on demand.
    in_memory : mapping of str to pyarrow.Table
        Rows that were read when the run was opened; they follow those in Parquet.
    unusable : dict of str to int
        Receives the number of values of a table that were out of range and are null now.
    failed : dict of str to str, optional
        Receives the reason if the Parquet of a table is damaged in spite of its checksum; the
        table is empty then. Without it, such a table raises an error.
    """

    def __init__(
        self,
        run: Path,
        parts: Sequence[Part],
        in_memory: Mapping[str, pa.Table],
        unusable: dict[str, int],
        failed: dict[str, str] | None = None,
    ) -> None:
        self._budget = Budget()
        for each in parts:
            add_to_budget(each, self._budget)
        self._counted: set[str] = set()
        self._failed = failed
        self._run = run
        self._parts = list(parts)
        self._verified: set[str] = set()
        self._in_memory = in_memory
        self._unusable = unusable
        #: Whether no table of a Parquet had to be read at once, so that rows in memory are newer.
        self.all_intact = False

    def __len__(self) -> int:
        return len(RECORDED)

    def __iter__(self) -> Iterator[str]:
        return iter(RECORDED)

    def __getitem__(self, name: str) -> pa.Table:
        return self.columns(name, arrow_schema(RECORDED[name]).names)

    def columns(self, name: str, columns: Sequence[str]) -> pa.Table:
        """Read some columns of a table.

        Parameters
        ----------
        name : str
            Name of the table.
        columns : sequence of str
            Names of the columns.

        Raises
        ------
        StrataError
            The Parquet was replaced since the run was opened, cannot be read at the moment, or is
            damaged and the run was imported and not finalised.
        """
        schema = schema_of(name, columns)
        loaded = self._in_memory.get(name)
        rest = [] if loaded is None or not len(loaded) else [loaded.select(schema.names)]
        if not any(part.rows.get(name) for part in self._parts):
            return rest[0] if rest else schema.empty_table()
        is_whole = len(schema) == len(arrow_schema(RECORDED[name]))
        try:
            parts = self._verify(name)
            results = [
                read_table(part, name, self._budget_for(name, parts, is_whole=is_whole), columns)
                for part in parts
            ]
            for part, (table, _) in zip(parts, results, strict=True):
                if len(table) != part.rows[name]:
                    raise ReplacedError(None, "its number of rows changed since the run was opened")
        except READ_ERRORS as error:
            reason = unreadable(error)
            if self._failed is not None and not _is_transient(error):
                self._failed[name] = reason
                return rest[0] if rest else schema.empty_table()
            raise self._error(name, reason) from error
        if is_whole:
            self._unusable[name] = sum(replaced for _, replaced in results)
        return joined([table for table, _ in results] + rest)

    def parts(self, name: str) -> Iterator[pa.Table]:
        """Yield the rows of a table: those in each Parquet, then those in memory."""
        yield from self.in_parquet(name)
        yield from self.in_memory(name)

    def in_parquet(self, name: str) -> Iterator[pa.Table]:
        """Yield the rows of a table in Parquet; those that an import wrote by row group."""
        columns = arrow_schema(RECORDED[name]).names
        for part in self._verify(name):
            if part.keys is None and self._failed is None:
                yield from self._row_groups(part, name)
            else:
                only = Tables(self._run, [part], {}, self._unusable, self._failed)
                yield only.columns(name, columns)

    def in_memory(self, name: str) -> Iterator[pa.Table]:
        """Yield the rows of a table that were read when the run was opened, if there are some."""
        loaded = self._in_memory.get(name)
        if loaded is not None and len(loaded):
            yield loaded

    def _row_groups(self, part: Part, name: str) -> Iterator[pa.Table]:
        try:
            for rows, unusable in read_row_groups(part, name):
                if unusable:
                    raise ValueError(f"{unusable:,} values are out of range")
                yield rows
        except READ_ERRORS as error:
            raise self._error(name, unreadable(error)) from error

    def with_more(self, rows: Mapping[str, pa.Table]) -> Tables:
        """Return the same tables with more rows in memory."""
        in_memory = dict(self._in_memory)
        for name, more in rows.items():
            if len(more):
                in_memory[name] = joined([in_memory[name], more] if name in in_memory else [more])
        found = Tables(self._run, self._parts, in_memory, self._unusable, self._failed)
        found.all_intact = self.all_intact
        return found

    def damaged_derived(self) -> dict[str, str]:
        """Return the derived tables that cannot be read and are computed instead, and why."""
        return {name: why for part in self._parts for name, why in damaged_derived(part).items()}

    def finalised(self) -> Part | None:
        """Return the Parquet that has all rows and derived tables; None if there is no such."""
        if len(self._parts) != 1 or any(len(rows) for rows in self._in_memory.values()):
            return None
        [part] = self._parts
        return part if part.keys_per_bucket and part.derived else None

    def growing(self) -> Part | None:
        """Return the Parquet that has all rows but those in memory; None if there is no such."""
        if len(self._parts) != 1 or not self.all_intact:
            return None
        [part] = self._parts
        return part if part.keys_per_bucket and part.derived else None

    def newer(self, seen: Mapping[str, int]) -> dict[str, pa.Table]:
        """Return the rows in memory that follow a number of them, by table."""
        return {name: rows.slice(seen.get(name, 0)) for name, rows in self._in_memory.items()}

    def of_parquet(self, name: str) -> pa.Table:
        """Return the rows of a table in Parquet only."""
        return Tables(self._run, self._parts, {}, self._unusable, self._failed)[name]

    def verify(self) -> None:
        """Verify the checksums of all tables that are read on demand.

        Raises
        ------
        StrataError
            As `columns` raises it.
        """
        for name in RECORDED:
            try:
                self._verify(name)
            except READ_ERRORS as error:
                raise self._error(name, unreadable(error)) from error

    def _error(self, name: str, reason: str) -> StrataError:
        origin = Manifest.read(self._run).imported_from
        hint = "If the run was compacted meanwhile, open it again."
        return StrataError(
            f"The Parquet of {name} in {self._run} cannot be read: {reason}",
            hint=f"{hint} Otherwise import it again from {origin}." if origin else hint,
        )

    def _verify(self, name: str) -> list[Part]:
        """Return the parts with a table; verify its checksum in each when it is first read."""
        if name not in self._verified:
            for i, part in enumerate(self._parts):
                if part.rows.get(name) and name not in part.verified:
                    found = verify(part, name)
                    if found is not None:
                        verified = {**part.verified, name: found}
                        self._parts[i] = replace(part, verified=verified)
            self._verified.add(name)
        return [part for part in self._parts if part.rows.get(name)]

    def _budget_for(self, name: str, parts: Sequence[Part], *, is_whole: bool) -> Budget:
        """Return the budget of one read: shared by whole tables, as callers keep them in memory."""
        if is_whole and name not in self._counted:
            self._counted.add(name)
            return self._budget
        budget = Budget()
        for part in parts:
            add_to_budget(part, budget)
        return budget

    def rows(self) -> dict[str, int]:
        """Return the number of rows of each table, without reading any."""
        return {
            name: sum(part.rows.get(name) or 0 for part in self._parts)
            + len(self._in_memory.get(name, ()))
            for name in RECORDED
        }
