"""Reading what is on record: segments, Parquet, or both, whatever became of them.

The tables are the same either way. What cannot be read is left out, and a row of
`losses` says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
        Names of what was added to it and is whole in these tables; not of an imported run, which
        keeps them as they are.
    damaged : list of str
        Names of what was added to it and cannot be read whole; and the name of its folder of
        Parquet, if that cannot.
    """

    manifest: Manifest
    folder: Path
    tables: Mapping[str, pa.Table]
    segments: list[Segment]
    rows: dict[str, int] = field(default_factory=dict)
    additions: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

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


def read_record(folder: Path, *, damaged: bool = True) -> Record:
    """Read everything that can be read.

    Parameters
    ----------
    folder : Path
        The run's folder.
    damaged : bool, optional
        Whether to read what can be read of additions that are damaged, too, and to tell of it.

    Raises
    ------
    NotARunError, NewerRunError
        It is no run, or one of a later version.
    """
    manifest = Manifest.read(folder)
    index = read_index(folder)
    if manifest.imported_from is not None:
        return _imported(manifest, folder, index)
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
    home = parquet_folder(folder)
    main = [] if home is None else [_read_part(_part(home, "Parquet"), folder)]
    additions = [_read_part(part, folder) for part in _added(folder, index)]
    found = main + [read for read in additions if damaged or not read.losses]
    _add_losses(new, rows)
    for read in found:
        for loss in read.losses:
            _add_loss(rows, **loss)
    tables = {name: collected.table() for name, collected in rows.items()}
    for name, table in tables.items():
        parts = [read.tables[name] for read in found if name in read.tables]
        if parts:
            tables[name] = pa.concat_tables([*parts, table]).unify_dictionaries()
    whole = [read.name for read in additions if not read.losses]
    names = [*(index.get("additions") or ()), *whole]
    apart = [read.name for read in main + additions if read.losses]
    return Record(manifest, folder, tables, segments, additions=names, damaged=apart)


def _imported(manifest: Manifest, folder: Path, index: Mapping[str, Any]) -> Record:
    """Return the record of an imported run, of which no table is read yet."""
    main = _Part(parquet_folder(folder) or folder, index["tables"])
    additions = [_with_readable_ends(part) for part in _added(folder, index)]
    rows = {"losses": Rows(RECORDED["losses"])}
    for part in additions:
        for loss in part.losses(folder):
            _add_loss(rows, **loss)
    losses = rows["losses"].table()
    parts = [main, *additions]
    counts = {name: sum(int(p.rows.get(name) or 0) for p in parts) for name in RECORDED}
    counts["losses"] += len(losses)
    apart = [part.home.name for part in additions if part.damages]
    return Record(manifest, folder, _Imported(folder, parts, losses), [], counts, damaged=apart)


@dataclass(frozen=True)
class _Part:
    """A folder of Parquet, by table.

    Attributes
    ----------
    rows : mapping of str to int or None
        How many rows each table has; None where that is not known.
    damages : tuple
        What cannot be read, how many rows of it are lost if that is known, and why.
    """

    home: Path
    rows: Mapping[str, int | None]
    damages: tuple[tuple[str, int | None, str], ...] = ()

    def losses(self, folder: Path) -> list[dict[str, Any]]:
        """Return rows of `losses`."""
        where = str(self.home.relative_to(folder))
        return [
            {"what": what, "count": count, "reason": reason, "where": where}
            for what, count, reason in self.damages
        ]


@dataclass(frozen=True)
class _Read:
    """What was read of a part: its tables, and rows of `losses` about those that were not."""

    name: str
    tables: Mapping[str, pa.Table]
    losses: list[dict[str, Any]]


def _read_part(part: _Part, folder: Path) -> _Read:
    tables = {}
    damages = list(part.damages)
    for name in RECORDED.keys() & part.rows.keys():
        try:
            tables[name] = _read_parquet(part.home, name)
        except (OSError, pa.ArrowException) as error:
            damages.append((name, part.rows[name], _unreadable(error)))
    return _Read(part.home.name, tables, replace(part, damages=tuple(damages)).losses(folder))


def _unreadable(error: Exception) -> str:
    return f"its Parquet cannot be read: {str(error).splitlines()[0]}"


def _added(folder: Path, index: Mapping[str, Any]) -> list[_Part]:
    """Return what was added to a run and is not in its Parquet already."""
    there = set(index.get("additions") or ())
    return [
        _part(home, "addition")
        for home in sorted((folder / ADDITIONS).glob("*"))
        if home.is_dir() and home.name not in there
    ]


def _part(home: Path, what: str) -> _Part:
    """Return a part; without a readable index its tables are those that it has folders of."""
    index = _index_or_none(home)
    if index is not None:
        return _Part(home, index["tables"])
    tables = {path.name: None for path in sorted(home.iterdir()) if path.is_dir()}
    reason = f"{INDEX} cannot be read: its tables are those that it has folders of"
    return _Part(home, tables, ((what, None, reason),))


def _with_readable_ends(part: _Part) -> _Part:
    """Return a part without the tables whose Parquet has no end that can be read.

    Those of an imported run are read one by one, when they are looked at; what is cut must be
    known before, so that it takes no more with it than itself.
    """
    rows = dict(part.rows)
    damages = list(part.damages)
    for name in RECORDED.keys() & part.rows.keys():
        try:
            rows[name] = ds.dataset(part.home / name, format="parquet").count_rows()
        except (OSError, pa.ArrowException) as error:
            damages.append((name, rows.pop(name), _unreadable(error)))
    return _Part(part.home, rows, tuple(damages))


class _Imported(Mapping[str, pa.Table]):
    """The tables of an imported run, which are all in Parquet, but for losses met in reading."""

    def __init__(self, folder: Path, parts: Sequence[_Part], losses: pa.Table) -> None:
        self._folder = folder
        self._parts = parts
        self._losses = losses

    def __len__(self) -> int:
        return len(RECORDED)

    def __iter__(self) -> Iterator[str]:
        return iter(RECORDED)

    def __getitem__(self, name: str) -> pa.Table:
        homes = [part.home for part in self._parts if part.rows.get(name)]
        own = [self._losses] if name == "losses" and len(self._losses) else []
        if not homes and not own:
            return arrow_schema(RECORDED[name]).empty_table()
        try:
            found = [*(_read_parquet(home, name) for home in homes), *own]
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
    found = _index_or_none(parquet_folder(folder) or folder)
    return {"segments": [], "tables": {}} if found is None else found


def _index_or_none(home: Path) -> dict[str, Any] | None:
    try:
        index = json.loads((home / INDEX).read_text(encoding="utf-8"))
        counts = index["tables"].values()
        if isinstance(index["segments"], list) and all(isinstance(n, int) for n in counts):
            return index  # type: ignore[no-any-return]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


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
