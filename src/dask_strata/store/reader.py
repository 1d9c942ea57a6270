"""Opening a run: its segments, its Parquet, or both, also if they are damaged.

The tables are the same either way. A part that cannot be read is left out, and a row of
`losses` gives the reason.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dask_strata.schema import RECORDED
from dask_strata.schema.values import LOST_FRAME, LOST_SEGMENT
from dask_strata.store.arrow import Rows
from dask_strata.store.index import Index, read_index
from dask_strata.store.limits import Budget
from dask_strata.store.manifest import (
    ADDITIONS,
    INDEX,
    PARQUET,
    SEGMENTS,
    SUFFIX,
    Manifest,
)
from dask_strata.store.on_demand import Tables, divide
from dask_strata.store.parquet import (
    added_parts,
    foreign_entries,
    joined,
    main_home,
    open_part,
    read_part,
    with_readable_footers,
)
from dask_strata.store.safe_files import (
    FILE,
    FOLDER,
    GONE,
    disk_bytes,
    entries,
    is_file,
    is_folder,
    is_name,
    kind_of,
)
from dask_strata.store.segments.encode import CONST
from dask_strata.store.segments.read import Segment, read_segment

if TYPE_CHECKING:
    import pyarrow as pa

#: Reason in `losses` for values that were read as null.
UNUSABLE_VALUES = "values of a wrong type, or out of range, were read as null"


@dataclass
class Record:
    """Contents of a run's folder.

    Attributes
    ----------
    manifest : Manifest
        The manifest.
    folder : Path
        The run's folder.
    tables : Tables
        The recorded tables, each with the columns of the schema. Tables in Parquet whose
        checksums match are read on demand, each time.
    segments : list of Segment
        The segments, whether they were read now or compacted before.
    rows : dict of str to int
        Number of rows of each table.
    additions : list of str
        Names of the additions that these tables contain in full.
    damaged : list of str
        Names of the additions that cannot be read in full, and the name of the Parquet folder if
        that cannot.
    refused : list of str
        Links, pipes and other entries in a place of a file or folder, each as a sentence.
    unusable : dict of str to int
        Number of values of a table that is read on demand that were read as null. Other tables
        have a row in `losses` instead.
    failed : dict of str to str
        Reason why a table that is read on demand is empty although it has rows.
    parts : tuple
        `parts_fingerprint` of the folder when it was read.
    snapshot : Path or None
        Folder whose Parquet was read in place of the run's own.
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
    parts: tuple[Any, ...] = ()
    snapshot: Path | None = None

    @property
    def imported(self) -> bool:
        """Whether the run was imported from other files; it has no segments then."""
        return self.manifest.imported_from is not None


def fingerprint(folder: Path) -> tuple[Any, ...]:
    """Return a value that changes when files of a run appear, disappear or grow.

    Parameters
    ----------
    folder : Path
        The run's folder, or its bundle.

    Returns
    -------
    tuple
        Names and sizes of the segments, the index and the additions; of a bundle its inode, size
        and time of the last change.
    """
    if is_file(folder):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            return status.st_ino, status.st_size, status.st_mtime_ns
    return _sizes(folder / SEGMENTS, folder / PARQUET / INDEX, folder / ADDITIONS)


def parts_fingerprint(folder: Path) -> tuple[Any, ...]:
    """Return a value that changes when the Parquet or the additions of a run change."""
    return _sizes(folder / PARQUET / INDEX, folder / ADDITIONS)


def _sizes(*paths: Path) -> tuple[Any, ...]:
    files = []
    for path in paths:
        try:
            if is_folder(path):
                with os.scandir(path) as found:
                    files += [(e.name, e.stat(follow_symlinks=False).st_size) for e in found]
            else:
                files.append((path.name, path.lstat().st_size))
        except OSError:
            continue
    return tuple(sorted(files))


def read_record(
    folder: Path,
    *,
    damaged: bool = True,
    receive: Callable[[str, pa.Table], None] | None = None,
    snapshot: Path | None = None,
) -> Record:
    """Open a run and read everything that can be read.

    Parameters
    ----------
    folder : Path
        The run's folder.
    damaged : bool, optional
        Whether to include the readable tables of damaged additions, and the reasons for the
        others in `losses`.
    receive : callable, optional
        Is passed the name of a table and a large batch of its rows in segments, in their order. The
        record has only the other rows, which follow those in Parquet and these.
    snapshot : Path, optional
        Folder with Parquet that has all rows of an earlier moment; it is read in place of the
        run's own, and of segments only what follows.

    Returns
    -------
    Record
        The contents.

    Raises
    ------
    NotARunError
        The folder is not a run.
    NewerRunError
        A later version wrote the run, in a format that this version cannot read.
    """
    manifest = Manifest.read(folder)
    parts_then = parts_fingerprint(folder)
    run_id = manifest.run_id
    base = snapshot or folder
    index = _main_index(base, run_id)
    for segment in index.segments:
        segment.path = folder / SEGMENTS / segment.path.name
    if manifest.imported_from is not None:
        return _imported(manifest, folder, index, damaged=damaged)
    rows = {
        name: Rows(table, None if receive is None else partial(receive, name))
        for name, table in RECORDED.items()
    }
    budget = Budget()
    segments, new, refused = _read_segments(folder, run_id, index, rows, budget)
    refused += _refused(folder)

    def unusable(name: str, count: int) -> None:
        rows[name].unusable += count

    home = main_home(base)
    main = [] if home is None else [divide(open_part(base, run_id, "Parquet", home))]
    on_demand = [verified for verified, _ in main]
    eager = [read_part(rest, budget, unusable) for _, rest in main]
    parts = added_parts(folder, run_id, index.additions)
    additions = [read_part(p, budget, unusable) for p in parts]
    included = eager + [contents for contents in additions if damaged or not contents.losses]
    for text in refused:
        _add_loss(rows, what="file", reason=f"{text}: it was not read")
    for contents in included:
        for loss in contents.losses:
            _add_loss(rows, **loss)
    in_memory = {name: rows[name].table() for name in RECORDED if name != "losses"}
    _add_losses(new, rows)  # only now: `Rows.table` finds the unusable values
    in_memory["losses"] = rows["losses"].table()
    for name, table in in_memory.items():
        in_memory[name] = joined([*(c.tables[name] for c in included if name in c.tables), table])
    unusable_on_demand: dict[str, int] = {}
    failed: dict[str, str] = {}
    tables = Tables(folder, on_demand, in_memory, unusable_on_demand, failed)
    tables.all_intact = not included or not any(c.tables or c.losses for c in included)
    refused += [f"{SEGMENTS}/{s.path.name} would take too much memory" for s in new if s.too_large]
    return Record(
        manifest,
        folder,
        tables,
        segments,
        {name: n + rows[name].passed_on for name, n in tables.rows().items()},
        additions=[*index.additions, *(c.name for c in additions if not c.losses)],
        damaged=[c.name for c in eager + additions if c.losses],
        refused=refused,
        unusable=unusable_on_demand,
        failed=failed,
        parts=parts_then,
        snapshot=snapshot,
    )


def read_more(record: Record) -> Record | None:
    """Return a record with the rows that segments have gained since it was read.

    Parameters
    ----------
    record : Record
        An earlier record of a run that is still being recorded.

    Returns
    -------
    Record or None
        None if more has changed than segments growing: the run must be read anew.
    """
    if record.imported or parts_fingerprint(record.folder) != record.parts:
        return None
    rows = {name: Rows(table) for name, table in RECORDED.items()}
    copies = [
        replace(s, damages=list(s.damages), unnumbered=list(s.unnumbered)) for s in record.segments
    ]
    known = Index(segments=copies)
    found = _read_segments(record.folder, record.manifest.run_id, known, rows, Budget())
    segments, new, refused = found
    if refused or any(s.foreign or s.too_large for s in new):
        return None
    if not {s.process for s in record.segments} <= {s.process for s in new}:
        return None  # a segment was removed
    empty = {s.process for s in record.segments if not s.size}
    if any(s.process in empty and s.size for s in new):
        return None  # an empty segment is a loss on record, until its process writes to it
    _add_losses([s for s in new if s.damages or s.lost_rows], rows)
    added = {name: collected.table() for name, collected in rows.items()}
    tables = record.tables.with_more(added)
    return replace(record, tables=tables, segments=segments, rows=tables.rows())


def _main_index(folder: Path, run_id: str) -> Index:
    """Return the index of the run's Parquet; an empty one if it is missing, damaged or foreign."""
    home = main_home(folder)
    try:
        index = Index() if home is None else read_index(folder, home)
    except (OSError, ValueError):
        return Index()
    return Index() if index.foreign(run_id) else index


def _read_segments(
    folder: Path, run_id: str, index: Index, rows: Mapping[str, Rows], budget: Budget
) -> tuple[list[Segment], list[Segment], list[str]]:
    """Return all segments, those with frames read now, and sentences about foreign entries."""
    segments = list(index.segments)
    known = {s.process: s for s in segments}
    new = []
    refused = []
    try:
        found = entries(folder, SEGMENTS)
    except OSError as error:
        return segments, [], [str(error.strerror or error)]
    for name, kind in found:
        if kind == FILE:
            with contextlib.suppress(OSError):
                budget.add_file(disk_bytes(folder / SEGMENTS / name))
    for name, kind in found:
        process = name.removesuffix(SUFFIX)
        if not name.endswith(SUFFIX) or kind == GONE:
            continue
        if kind != FILE or not is_name(process):
            refused.append(f"{SEGMENTS}/{name!a}"[:200] + f" is {kind}")
            continue
        compacted = known.get(process)
        segment = read_segment(folder, run_id, name, compacted, (rows, budget))
        if segment.foreign:
            refused.append(f"{SEGMENTS}/{name!a}"[:200] + f" {segment.foreign}")
            continue
        new.append(segment)
        if compacted is None:
            segments.append(segment)
        else:
            compacted.extend(segment)
    return segments, new, refused


def _refused(folder: Path) -> list[str]:
    """Describe the entries of a run's Parquet folders that are neither files nor folders."""
    found = []
    homes: list[tuple[str, ...]] = [
        (name,) for name in (PARQUET, f"{PARQUET}.old") if kind_of(folder / name)
    ]
    if kind_of(folder / ADDITIONS):
        found += foreign_entries(folder, ADDITIONS, folders=True)
        with contextlib.suppress(OSError):
            homes += [(ADDITIONS, n) for n, k in entries(folder, ADDITIONS) if k == FOLDER]
    for home in homes:
        found += foreign_entries(folder, *home, folders=True)
        with contextlib.suppress(OSError):
            for name, kind in entries(folder, *home):
                if kind == FOLDER and name in RECORDED:
                    found += foreign_entries(folder, *home, name)
    return found


def _imported(manifest: Manifest, folder: Path, index: Index, *, damaged: bool) -> Record:
    """Return the record of an imported run; all its tables are read on demand."""
    home = main_home(folder)
    main = [] if home is None else [open_part(folder, manifest.run_id, "Parquet", home)]
    finalised = any(part.keys is not None for part in main)
    if finalised:
        divided = [each for part in main for each in divide(part)]
        main = [each for each in divided if each.rows or each.damages]
        main = [each if each.verified else with_readable_footers(each) for each in main]
    else:
        main = [with_readable_footers(part) if part.damages else part for part in main]
    parts = added_parts(folder, manifest.run_id, index.additions)
    found = [with_readable_footers(p) for p in parts]
    additions = [part for part in found if damaged or not part.damages]
    refused = _refused(folder)
    rows = {"losses": Rows(RECORDED["losses"])}
    for text in refused:
        _add_loss(rows, what="file", reason=f"{text}: it was not read")
    for part in (*main, *additions):
        for loss in part.losses():
            _add_loss(rows, **loss)
    unusable: dict[str, int] = {}
    failed: dict[str, str] = {}
    tables = Tables(
        folder,
        [*main, *additions],
        {"losses": rows["losses"].table()},
        unusable,
        failed if finalised else None,
    )
    return Record(
        manifest,
        folder,
        tables,
        [],
        tables.rows(),
        additions=[*index.additions, *(p.name for p in found if not p.damages)],
        damaged=[p.name for p in (*main, *found) if p.damages],
        refused=refused,
        unusable=unusable,
        failed=failed,
    )


def _add_losses(segments: Sequence[Segment], rows: Mapping[str, Rows]) -> None:
    for segment in segments:
        common: dict[str, Any] = {
            "time": int(segment.modified * 1e9) or None,
            "where": segment.path.name,
            "process": segment.process,
        }
        for damage in segment.damages:
            _add_loss(rows, what=LOST_SEGMENT, reason=damage, **common)
        if segment.lost_rows:
            _add_loss(
                rows, what=LOST_FRAME, count=segment.lost_rows, reason="rows are missing", **common
            )
    for name, collected in rows.items():
        if collected.unusable:
            _add_loss(
                rows,
                what=name,
                count=collected.unusable,
                reason=UNUSABLE_VALUES,
            )


def _add_loss(rows: Mapping[str, Rows], process: str = "reader", **loss: Any) -> None:
    rows["losses"].extend(1, {name: (CONST, value) for name, value in loss.items()}, process, 0)
