"""Reading what is on record: segments, Parquet, or both, whatever became of them.

The tables are the same either way. What cannot be read is left out, and a row of
`losses` says so.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dask_strata.schema import RECORDED
from dask_strata.schema.values import LOST_FRAME, LOST_SEGMENT
from dask_strata.store.arrow import Rows
from dask_strata.store.index import INDEX, Index, read_index
from dask_strata.store.limits import Budget
from dask_strata.store.manifest import ADDITIONS, MANIFEST, PARQUET, SEGMENTS, SUFFIX, Manifest
from dask_strata.store.on_demand import Tables, as_written
from dask_strata.store.parquet import (
    Part,
    added_parts,
    joined,
    main_home,
    part,
    read_part,
    strangers,
    with_readable_ends,
)
from dask_strata.store.safe_files import disk_bytes, entries, is_folder, is_name, kind_of
from dask_strata.store.segments import Segment, read_segment

#: What is said of values that were not read.
NO_SUCH_VALUES = "values of the wrong type, or beyond all bounds, were read as null"


@dataclass
class Record:
    """Everything that is on record in a run's folder.

    Attributes
    ----------
    tables : Tables
        The recorded tables, each with the columns of the schema. Those in Parquet that is as it
        was written are read when they are looked at, each time.
    segments : list of Segment
        The segments, whether read now or compacted before.
    rows : dict of name to int
        How many rows each table has.
    additions : list of str
        Names of what was added to it and is whole in these tables; not of an imported run, which
        keeps them as they are.
    damaged : list of str
        Names of what was added to it and cannot be read whole; and the name of its folder of
        Parquet, if that cannot.
    refused : list of str
        What is in the folder where a file or a folder belongs, and is none: links, pipes.
    unusable : dict of str to int
        How many values were read as null of those tables that are read when they are looked
        at; of others `losses` says it.
    failed : dict of str to str
        Why those of them have no rows that could not be read after all.
    """

    manifest: Manifest
    folder: Path
    tables: Tables
    segments: list[Segment]
    rows: dict[str, int] = field(default_factory=dict)
    additions: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unusable: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def imported(self) -> bool:
        """Whether it was made of files that others wrote; it has no segments then."""
        return self.manifest.imported_from is not None


def fingerprint(folder: Path) -> tuple[Any, ...]:
    """Return something that changes when there is more, or less, to read."""
    files = []
    for path in (folder / SEGMENTS, folder / PARQUET / INDEX, folder / ADDITIONS):
        try:
            if is_folder(path):
                with os.scandir(path) as found:
                    files += [(e.name, e.stat(follow_symlinks=False).st_size) for e in found]
            else:
                files.append((path.name, path.lstat().st_size))
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
    index = _main_index(folder)
    if manifest.imported_from is not None:
        return _imported(manifest, folder, index)
    rows = {name: Rows(table) for name, table in RECORDED.items()}
    budget = Budget()
    segments, new, refused = _read_segments(folder, index, rows, budget)
    refused += _refused(folder)

    def unusable(name: str, count: int) -> None:
        rows[name].unusable += count

    home = main_home(folder)
    main = [] if home is None else [part(folder, "Parquet", home)]
    later = [sound for p in main if (sound := as_written(p)) is not None]
    eager = [] if later else [read_part(p, budget, unusable) for p in main]
    additions = [read_part(p, budget, unusable) for p in added_parts(folder, index.additions)]
    found = eager + [read for read in additions if damaged or not read.losses]
    for what in refused:
        _add_loss(rows, what="file", reason=f"{what}: it was not read")
    for read in found:
        for loss in read.losses:
            _add_loss(rows, **loss)
    read_now = {name: rows[name].table() for name in RECORDED if name != "losses"}
    _add_losses(new, rows)  # of values too, which are looked at when a table is made
    read_now["losses"] = rows["losses"].table()
    for name, table in read_now.items():
        read_now[name] = joined([*(r.tables[name] for r in found if name in r.tables), table])
    odd: dict[str, int] = {}
    failed: dict[str, str] = {}
    tables = Tables(folder, later, read_now, odd, failed)
    whole = [read.name for read in additions if not read.losses]
    names = [*index.additions, *whole]
    refused += [f"{SEGMENTS}/{s.path.name} would take too much memory" for s in new if s.too_large]
    apart = [read.name for read in eager + additions if read.losses]
    return Record(
        manifest, folder, tables, segments, tables.rows(), names, apart, refused, odd, failed
    )


def _main_index(folder: Path) -> Index:
    """Return what the run's Parquet says it holds; nothing, if it is not there or damaged."""
    home = main_home(folder)
    try:
        return Index() if home is None else read_index(folder, home)
    except (OSError, ValueError):
        return Index()


def _read_segments(
    folder: Path, index: Index, rows: Mapping[str, Rows], budget: Budget
) -> tuple[list[Segment], list[Segment], list[str]]:
    """Return all segments, those that were read now, and what is among them and is none."""
    segments = list(index.segments)
    known = {s.process: s for s in segments}
    new = []
    refused = []
    try:
        found = entries(folder, SEGMENTS)
    except OSError as error:
        return segments, [], [str(error.strerror or error)]
    for name, kind in found:
        if kind == "a file":
            with contextlib.suppress(OSError):
                budget.allow(disk_bytes(folder / SEGMENTS / name))
    for name, kind in found:
        process = name.removesuffix(SUFFIX)
        if not name.endswith(SUFFIX) or kind == "gone":
            continue
        if kind != "a file" or not is_name(process):
            refused.append(f"{SEGMENTS}/{name!a}"[:200] + f" is {kind}")
            continue
        before = known.get(process)
        segment = read_segment(folder, name, before, rows, budget)
        new.append(segment)
        if before is None:
            segments.append(segment)
        else:
            before.absorb(segment)
    return segments, new, refused


def _refused(folder: Path) -> list[str]:
    """Return what is in a run's Parquet and is none."""
    found = []
    homes: list[tuple[str, ...]] = [
        (name,) for name in (PARQUET, f"{PARQUET}.old") if kind_of(folder / name)
    ]
    if kind_of(folder / ADDITIONS):
        found += strangers(folder, ADDITIONS, folders=True)
        with contextlib.suppress(OSError):
            homes += [(ADDITIONS, n) for n, k in entries(folder, ADDITIONS) if k == "a folder"]
    for home in homes:
        found += strangers(folder, *home, folders=True)
        with contextlib.suppress(OSError):
            for name, kind in entries(folder, *home):
                if kind == "a folder" and name in RECORDED:
                    found += strangers(folder, *home, name)
    return found


def _imported(manifest: Manifest, folder: Path, index: Index) -> Record:
    """Return the record of an imported run, of which no table is read yet."""
    home = main_home(folder)
    main = [] if home is None else [Part(folder, (home,), dict(index.tables))]
    additions = [with_readable_ends(p) for p in added_parts(folder, index.additions)]
    refused = _refused(folder)
    rows = {"losses": Rows(RECORDED["losses"])}
    for what in refused:
        _add_loss(rows, what="file", reason=f"{what}: it was not read")
    for added in additions:
        for loss in added.losses():
            _add_loss(rows, **loss)
    unusable: dict[str, int] = {}
    tables = Tables(folder, [*main, *additions], {"losses": rows["losses"].table()}, unusable)
    return Record(
        manifest,
        folder,
        tables,
        [],
        tables.rows(),
        damaged=[p.name for p in additions if p.damages],
        refused=refused,
        unusable=unusable,
    )


def _add_losses(segments: Sequence[Segment], rows: Mapping[str, Rows]) -> None:
    for segment in segments:
        about: dict[str, Any] = {
            "time": int(segment.modified * 1e9) or None,
            "where": segment.path.name,
            "process": segment.process,
        }
        for damage in segment.damages:
            _add_loss(rows, what=LOST_SEGMENT, reason=damage, **about)
        if segment.lost_rows:
            _add_loss(
                rows, what=LOST_FRAME, count=segment.lost_rows, reason="rows are missing", **about
            )
    for name, collected in rows.items():
        if collected.unusable:
            _add_loss(
                rows,
                what=name,
                count=collected.unusable,
                reason=NO_SUCH_VALUES,
            )


def _add_loss(rows: Mapping[str, Rows], process: str = "reader", **loss: Any) -> None:
    rows["losses"].extend(1, {name: [value] for name, value in loss.items()}, process, 0)


def find_runs(runs: Path) -> Iterator[Path]:
    """Yield the folders of runs in a folder, oldest first by name."""
    if kind_of(runs / MANIFEST) is not None:
        yield runs
        return
    try:
        entries = sorted(p for p in runs.iterdir() if p.is_dir() and not p.name.startswith("."))
    except OSError:
        return
    for path in entries:
        if kind_of(path / MANIFEST) is not None:  # what it is, is told when it is opened
            yield path
