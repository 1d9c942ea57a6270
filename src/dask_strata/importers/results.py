"""The result of adding files to a run, and its rows in the run's ``imports`` and ``losses``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from dask_strata.store.bulk_writer import Addition
    from dask_strata.store.reader import Record

#: Called with the bytes read so far and the bytes in total.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ImportTarget:
    """The run that files are added to.

    Attributes
    ----------
    addition : Addition
        Receives the new rows.
    record : Record
        The rows that the run has already.
    process : str
        Id of the importing process, for rows about the import itself.
    progress : Progress
        Called with the bytes read so far and the bytes in total.
    keep_others : bool
        Whether to keep files that match neither the run's processes nor its time.
    """

    addition: Addition
    record: Record
    process: str
    progress: Progress
    keep_others: bool = False


@dataclass
class ImportResult:
    """Counts and messages of one import into a run.

    Attributes
    ----------
    files : int
        Files whose rows were added.
    rows : int
        Rows that were added.
    already_imported : int
        Files that the run had before, which were skipped.
    log_rows : int
        Rows about the import itself: files that were read or refused.
    notes : list of str
        Messages about the import as a whole, such as how many logs matched a process.
    problems : list of str
        Files, or parts of files, that could not be read, each with the reason.
    unrecognised : list of str
        Paths whose kind of file is not supported, or that are no regular files.
    skipped : mapping of str to int
        By folder, the number of files that were not opened because of their ending.
    """

    files: int = 0
    rows: int = 0
    already_imported: int = 0
    log_rows: int = 0
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    unrecognised: list[str] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)

    def absorb(self, other: ImportResult) -> None:
        """Add the counts and messages of another result to this one.

        >>> both = ImportResult(files=1, notes=["1 log matched"])
        >>> both.absorb(ImportResult(files=2, notes=["2 logs left out"]))
        >>> both.files, both.notes
        (3, ['1 log matched', '2 logs left out'])
        """
        for name in ("files", "rows", "already_imported", "log_rows"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("notes", "problems", "unrecognised"):
            getattr(self, name).extend(getattr(other, name))
        self.skipped |= other.skipped


@dataclass(frozen=True)
class ImportLog:
    """Writes the rows about an import itself: files read, and facts lost.

    Parameters
    ----------
    kind : str
        Kind of the files, as in ``registry.KINDS``.
    target : ImportTarget
        The run that is added to.
    result : ImportResult
        Its ``log_rows`` and ``problems`` are updated.
    """

    kind: str
    target: ImportTarget
    result: ImportResult

    def add_file(self, path: Path, sha256: str, kept: int) -> None:
        """Write the row of ``imports`` for a file of which `kept` rows were added."""
        row = {
            "file": path.name,
            "folder": str(path.absolute().parent),
            "kept": kept,
            "size_bytes": path.stat().st_size,
            "kind": self.kind,
            "sha256": sha256,
            "process": self.target.process,
        }
        self.target.addition.write_rows("imports", [row])
        self.result.log_rows += 1

    def add_loss(self, path: Path | None, what: str, reason: str, count: int | None = None) -> None:
        """Write the row of ``losses`` for something that could not be read."""
        where = None if path is None else str(path.absolute())
        row = {"what": what, "count": count, "reason": reason, "where": where}
        self.target.addition.write_rows("losses", [row | {"process": self.target.process}])
        self.result.log_rows += 1

    def refuse_file(self, path: Path, reason: str, sha256: str | None) -> None:
        """Report a file of which no row is kept; `sha256` is None if its bytes are unreadable."""
        self.result.problems.append(f"{path}: {reason}")
        self.add_loss(path, path.name, reason)
        if sha256 is not None:
            self.add_file(path, sha256, kept=0)


def imported_digests(record: Record) -> set[str]:
    """Return the SHA-256 of the files whose rows a run has, without the refused files."""
    imports = record.tables["imports"].select(["sha256", "kept"])
    columns = imports["sha256"].cast(pa.string()).to_pylist(), imports["kept"].to_pylist()
    return {sha256 for sha256, kept in zip(*columns, strict=True) if sha256 and kept}


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
