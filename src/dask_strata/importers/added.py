"""What came of adding files to a run."""

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

#: Called with the bytes that were read, and those that there are.
Progress = Callable[[int, int], None]


@dataclass
class Added:
    """What came of adding files to a run.

    Attributes
    ----------
    files : int
        Files of which rows are in the run now.
    rows : int
        These rows.
    again : int
        Files that were in it before.
    noted : int
        Rows about the import itself: files that were read or refused.
    said : list of str
        What there is to say.
    troubles : list of str
        What could not be read, and why.
    unknown : list of str
        Files of a kind that nobody here knows, or that are no regular files.
    passed : mapping of str to int
        How many files of a folder have no ending that is known, so that nobody looked at them.
    """

    files: int = 0
    rows: int = 0
    again: int = 0
    noted: int = 0
    said: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    passed: dict[str, int] = field(default_factory=dict)

    def absorb(self, other: Added) -> None:
        """Add what came of other files."""
        for name in ("files", "rows", "again", "noted"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("said", "troubles", "unknown"):
            getattr(self, name).extend(getattr(other, name))
        self.passed |= other.passed


@dataclass(frozen=True)
class Notes:
    """Puts on record what was imported, and what could not be.

    Parameters
    ----------
    kind : str
        Kind of the files.
    addition : Addition
        Gets the rows.
    process : str
        The process that imports.
    added : Added
        What came of it.
    """

    kind: str
    addition: Addition
    process: str
    added: Added

    def imported(self, path: Path, sha256: str, kept: int) -> None:
        """Note that a file was read, and how many of its rows are kept."""
        row = {
            "file": path.name,
            "folder": str(path.absolute().parent),
            "kept": kept,
            "size_bytes": path.stat().st_size,
            "kind": self.kind,
            "sha256": sha256,
            "process": self.process,
        }
        self.addition.write_rows("imports", [row])
        self.added.noted += 1

    def loss(self, path: Path | None, what: str, reason: str, count: int | None = None) -> None:
        """Note that something could not be read, and why."""
        where = None if path is None else str(path.absolute())
        row = {"what": what, "count": count, "reason": reason, "where": where}
        self.addition.write_rows("losses", [row | {"process": self.process}])
        self.added.noted += 1

    def refuse(self, path: Path, why: str, sha256: str | None) -> None:
        """Note that nothing of a file is kept."""
        self.added.troubles.append(f"{path}: {why}")
        self.loss(path, path.name, why)
        if sha256 is not None:
            self.imported(path, sha256, kept=0)


def known_files(record: Record) -> set[str]:
    """Return the SHA-256 of the files of which a run has rows: not of those that were refused."""
    known = record.tables["imports"].select(["sha256", "kept"])
    columns = known["sha256"].cast(pa.string()).to_pylist(), known["kept"].to_pylist()
    return {sha256 for sha256, kept in zip(*columns, strict=True) if sha256 and kept}


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes. Raises OSError."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest()
