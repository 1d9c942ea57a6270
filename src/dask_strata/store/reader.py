"""Reading what is on record: segments, Parquet, or both, whatever became of them.

The tables are the same either way. What cannot be read is left out, and a row of
`losses` says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from dask_strata.errors import StrataError
from dask_strata.schema import RECORDED, TABLES
from dask_strata.store.arrow import Rows, arrow_schema
from dask_strata.store.manifest import ADDITIONS, PARQUET, SEGMENTS, SUFFIX, Manifest
from dask_strata.store.segments import Segment, read_segment

#: File in the Parquet folder that says which part of which segment it holds.
INDEX = "index.json"


@dataclass
class Record:
    """Everything that is on record in a run's folder.

    Attributes
    ----------
    tables : mapping of name to pyarrow.Table
        The recorded tables, each with the columns of the schema. Those of an imported run are
        read when they are looked at.
    segments : list of Segment
        The segments, whether read now or compacted before.
    rows : dict of name to int
        How many rows a table has, of those that are read when they are looked at.
    additions : list of str
        Names of what was added to it and is in these tables; not of an imported run, which
        keeps them as they are.
    """

    manifest: Manifest
    folder: Path
    tables: Mapping[str, pa.Table]
    segments: list[Segment]
    rows: dict[str, int] = field(default_factory=dict)
    additions: list[str] = field(default_factory=list)

    @property
    def imported(self) -> bool:
        """Whether it was made of files that others wrote; it has no segments then."""
        return self.manifest.imported_from is not None


def fingerprint(folder: Path) -> tuple[Any, ...]:
    """Return something that changes when there is more, or less, to read."""
    files = []
    for path in (folder / SEGMENTS, folder / PARQUET / INDEX, folder / ADDITIONS):
        try:
            entries = list(os.scandir(path)) if path.is_dir() else [path]
            files += [(e.name, e.stat().st_size) for e in entries]
        except OSError:
            continue
    return tuple(sorted(files))


def read_record(folder: Path) -> Record:
    """Read everything that can be read.

    Parameters
    ----------
    folder : Path
        The run's folder.

    Raises
    ------
    NotARunError, NewerRunError
        It is no run, or one of a later version.
    """
    manifest = Manifest.read(folder)
    index = read_index(folder)
    if manifest.imported_from is not None:
        parts = [_Part(parquet_folder(folder) or folder, index["tables"]), *_added(folder, index)]
        counts = {name: sum(int(p.rows.get(name, 0)) for p in parts) for name in RECORDED}
        return Record(manifest, folder, _Imported(folder, parts), [], counts)
    rows = {name: Rows(table) for name, table in RECORDED.items()}
    segments = [
        Segment(**{**s, "path": folder / SEGMENTS / f"{s['process']}{SUFFIX}"})
        for s in index["segments"]
    ]
    known = {s.process: s for s in segments}
    new = []
    for path in sorted((folder / SEGMENTS).glob(f"*{SUFFIX}")):
        before = known.get(path.stem)
        segment = read_segment(path, before, rows)
        new.append(segment)
        if before is None:
            segments.append(segment)
        else:
            before.absorb(segment)
    compacted: dict[str, list[pa.Table]] = {}
    unreadable = []
    additions = _added(folder, index)
    for part in (_Part(parquet_folder(folder) or folder, index["tables"]), *additions):
        for name in part.rows.keys() & rows.keys():
            try:
                compacted.setdefault(name, []).append(_read_parquet(part.home, name))
            except (OSError, pa.ArrowException) as error:
                unreadable.append((part, name, str(error).splitlines()[0]))
    _add_losses(new, rows)
    for part, name, reason in unreadable:
        _add_loss(
            rows,
            what=name,
            count=part.rows[name],
            reason=f"its Parquet cannot be read: {reason}",
            where=str(part.home.relative_to(folder)),
        )
    tables = {name: collected.table() for name, collected in rows.items()}
    for name, found in compacted.items():
        tables[name] = pa.concat_tables([*found, tables[name]]).unify_dictionaries()
    names = [*(index.get("additions") or ()), *(part.home.name for part in additions)]
    return Record(manifest, folder, tables, segments, additions=names)


@dataclass(frozen=True)
class _Part:
    """A folder of Parquet, by table, and how many rows each has."""

    home: Path
    rows: Mapping[str, int]


def _added(folder: Path, index: Mapping[str, Any]) -> list[_Part]:
    """Return what was added to a run and is not in its Parquet already."""
    there = set(index.get("additions") or ())
    return [
        _Part(path.parent, _index_of(path.parent)["tables"])
        for path in sorted((folder / ADDITIONS).glob(f"*/{INDEX}"))
        if path.parent.name not in there
    ]


class _Imported(Mapping[str, pa.Table]):
    """The tables of an imported run, which are all in Parquet."""

    def __init__(self, folder: Path, parts: Sequence[_Part]) -> None:
        self._folder = folder
        self._parts = parts

    def __len__(self) -> int:
        return len(RECORDED)

    def __iter__(self) -> Iterator[str]:
        return iter(RECORDED)

    def __getitem__(self, name: str) -> pa.Table:
        homes = [part.home for part in self._parts if part.rows.get(name)]
        if not homes:
            return arrow_schema(RECORDED[name]).empty_table()
        try:
            found = [_read_parquet(home, name) for home in homes]
            return found[0] if len(found) == 1 else pa.concat_tables(found).unify_dictionaries()
        except (OSError, pa.ArrowException) as error:
            raise StrataError(
                f"The Parquet of {name} in {self._folder} cannot be read: "
                f"{str(error).splitlines()[0]}",
                hint=f"Import it again from {Manifest.read(self._folder).imported_from}.",
            ) from error


def _add_losses(segments: Sequence[Segment], rows: Mapping[str, Rows]) -> None:
    for segment in segments:
        about: dict[str, Any] = {
            "time": int(segment.modified * 1e9),
            "where": segment.path.name,
            "process": segment.process,
        }
        for damage in segment.damages:
            _add_loss(rows, what="segment", reason=damage, **about)
        if segment.lost_rows:
            _add_loss(
                rows, what="rows", count=segment.lost_rows, reason="a frame is missing", **about
            )
    for name, collected in rows.items():
        if collected.unusable:
            _add_loss(
                rows,
                what=name,
                count=collected.unusable,
                reason="values of the wrong type were read as null",
            )


def _add_loss(rows: Mapping[str, Rows], process: str = "reader", **loss: Any) -> None:
    rows["losses"].extend(1, {name: [value] for name, value in loss.items()}, process, 0)


def parquet_folder(folder: Path) -> Path | None:
    """Return the folder with the run's Parquet, also after an interrupted compaction."""
    for name in (PARQUET, f"{PARQUET}.old"):
        if (folder / name / INDEX).is_file():
            return folder / name
    return None


def read_index(folder: Path) -> dict[str, Any]:
    """Return what the Parquet folder says it holds; nothing, if it is not there or damaged."""
    return _index_of(parquet_folder(folder) or folder)


def _index_of(home: Path) -> dict[str, Any]:
    try:
        index = json.loads((home / INDEX).read_text(encoding="utf-8"))
        if isinstance(index["segments"], list) and isinstance(index["tables"], dict):
            return index  # type: ignore[no-any-return]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return {"segments": [], "tables": {}}


def _read_parquet(home: Path, name: str) -> pa.Table:
    schema = arrow_schema(TABLES[name])
    found = ds.dataset(home / name, format="parquet").to_table()
    arrays = [
        found[f.name].cast(f.type) if f.name in found.column_names else pa.nulls(len(found), f.type)
        for f in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def find_runs(runs: Path) -> Iterator[Path]:
    """Yield the folders of runs in a folder, oldest first by name."""
    if (runs / "run.json").is_file():
        yield runs
        return
    try:
        entries = sorted(p for p in runs.iterdir() if p.is_dir() and not p.name.startswith("."))
    except OSError:
        return
    for path in entries:
        if (path / "run.json").is_file():
            yield path
