"""The recorded tables of a run, of which those in Parquet are read when they are looked at.

For that the Parquet must be as it was written, which its checksums say. Anything else is read at
once, by `reader`, so that what cannot be read costs its own table and is told of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dask_strata.errors import StrataError
from dask_strata.schema import RECORDED
from dask_strata.store.arrow import arrow_schema
from dask_strata.store.limits import Budget
from dask_strata.store.manifest import Manifest
from dask_strata.store.parquet import (
    ENDING,
    READ_ERRORS,
    ExchangedError,
    Part,
    allow,
    identity,
    joined,
    read_table,
    schema_of,
    unreadable,
)
from dask_strata.store.safe_files import checksum, disk_bytes, entries, open_inside

#: How much longer than on disk a file may be that is looked through, as some disks compress; and
#: so many bytes more, as others say later how much it takes.
_LENGTH_RATIO = 4
_FEW_BYTES = 1 << 20


def as_written(part: Part) -> Part | None:
    """Return a part if its files are, byte for byte, what its index says was written.

    They were read and compared before that was said, and can be read when they are looked at.
    """
    looked_at = {}
    if part.damages:
        return None
    try:
        for name, rows in part.rows.items():
            files = [n for n, _ in entries(part.run, *part.home, name) if n.endswith(ENDING)]
            if len(files) != 1 or name not in part.checksums:
                return None
            path = part.run.joinpath(*part.home, name, files[0])
            if path.lstat().st_size > _LENGTH_RATIO * disk_bytes(path) + _FEW_BYTES:
                return None  # with holes it may be too long to be looked through
            with open_inside(part.run, *part.home, name, files[0]) as file:
                looked_at[name] = identity(file)
                if checksum(file) != part.checksums[name]:
                    return None
                if pq.read_metadata(file).num_rows != rows:
                    return None
    except READ_ERRORS:
        return None
    return replace(part, looked_at=looked_at)


def _may_pass(error: BaseException) -> bool:
    """Return whether a file could be read another time: then it is not without rows."""
    # Arrow says of what a file contains that it is an OSError, and has no number for it.
    by_arrow = type(error) is OSError and error.errno is None
    return isinstance(error, (OSError, MemoryError)) and not by_arrow


class Tables(Mapping[str, pa.Table]):
    """The recorded tables of a run, of which those in Parquet are read when they are looked at.

    Parameters
    ----------
    run : Path
        The run's folder.
    parts : sequence of Part
        What is read then.
    read : mapping of str to pyarrow.Table
        Rows that were read before, and come behind those.
    unusable : dict of str to int
        Gets how many values of a table were read as null.
    failed : dict of str to str
        Gets why a table of a recorded run has no rows, if they cannot be read after all.
    """

    def __init__(
        self,
        run: Path,
        parts: Sequence[Part],
        read: Mapping[str, pa.Table],
        unusable: dict[str, int],
        failed: dict[str, str] | None = None,
    ) -> None:
        self._budget = Budget()
        for each in parts:
            allow(each, self._budget)
        self._whole: set[str] = set()
        self._failed = failed
        self._run = run
        self._parts = parts
        self._read = read
        self._unusable = unusable

    def __len__(self) -> int:
        return len(RECORDED)

    def __iter__(self) -> Iterator[str]:
        return iter(RECORDED)

    def __getitem__(self, name: str) -> pa.Table:
        return self.columns(name, arrow_schema(RECORDED[name]).names)

    def columns(self, name: str, columns: Sequence[str]) -> pa.Table:
        """Return some columns of a table; only these are read.

        Raises
        ------
        StrataError
            Its Parquet was exchanged since it was looked at; or cannot be read just now, or at all
            and the run was imported.
        """
        schema = schema_of(name, columns)
        parts = [part for part in self._parts if part.rows.get(name)]
        read = self._read.get(name)
        own = [] if read is None or not len(read) else [read.select(schema.names)]
        if not parts:
            return own[0] if own else schema.empty_table()
        is_whole = len(schema) == len(arrow_schema(RECORDED[name]))
        try:
            found = [
                read_table(part, name, self._budget_for(name, parts, is_whole=is_whole), columns)
                for part in parts
            ]
            for part, (table, _) in zip(parts, found, strict=True):
                if len(table) != part.rows[name]:
                    raise ExchangedError(None, "it has not as many rows as before")
        except READ_ERRORS as error:
            why = unreadable(error)
            if self._failed is not None and not _may_pass(error):
                self._failed[name] = why
                return own[0] if own else schema.empty_table()
            origin = Manifest.read(self._run).imported_from
            raise StrataError(
                f"The Parquet of {name} in {self._run} cannot be read: {why}",
                hint=f"Import it again from {origin}."
                if origin
                else "If it was compacted meanwhile, open it again.",
            ) from error
        if is_whole:
            self._unusable[name] = sum(odd for _, odd in found)
        return joined([table for table, _ in found] + own)

    def _budget_for(self, name: str, parts: Sequence[Part], *, is_whole: bool) -> Budget:
        """Return what reading may take: tables that stay, of all of it; others go again."""
        if is_whole and name not in self._whole:
            self._whole.add(name)
            return self._budget
        budget = Budget()
        for part in parts:
            allow(part, budget)
        return budget

    def rows(self) -> dict[str, int]:
        """Return how many rows each table has, without reading any."""
        return {
            name: sum(part.rows.get(name) or 0 for part in self._parts)
            + len(self._read.get(name, ()))
            for name in RECORDED
        }
