"""The format `bundle`: a zip file with a finalised run and its page.

Members are stored as they are, because Parquet is compressed. Their times and permissions are
always the same, so that the bundles of a finalised run are equal. Any other run is finalised in a
copy, where derived tables may have their rows in another order each time.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from dask_strata.analysis.overview.stored import stored_parts
from dask_strata.config import VERSION
from dask_strata.errors import InterruptedQueryError, StrataError, UsageError
from dask_strata.export.bundle.finalised import files_of, finalised
from dask_strata.export.exporter import Exporter, Job
from dask_strata.report.page.page import page_pieces
from dask_strata.run import Run
from dask_strata.store.manifest import BUNDLE_SUFFIX, PARQUET
from dask_strata.store.safe_files import open_inside
from dask_strata.store.summaries.files import SUMMARY, FileState, RunFiles, is_read, is_summary
from dask_strata.store.summaries.summary_file import summary_bytes
from dask_strata.store.zipped.copy import MODIFIED_NS
from dask_strata.store.zipped.directory import BLOCK

#: Members beside the files of the run: its page, and the notes of the export.
PAGE = "page.html"
FACTS = "bundle.json"

#: Version of the format.
_FORMAT = 1

#: Permissions of a member in Unix's form: a file that its owner reads and writes.
_ATTRIBUTES = 0o100600 << 16


class Bundle(Exporter):
    """A run and its page in one file."""

    name = "bundle"
    summary = "the whole run and its page, one file that dask-strata reads like a folder"
    suffix = BUNDLE_SUFFIX
    media_type = "application/zip"

    def write(self, run: Run, path: Path, job: Job) -> None:
        """Write the bundle of a run; see `Exporter.write`."""
        if run.client is not None or not run.align:
            raise UsageError(
                "A bundle has the whole run: the tasks of all clients, and the clocks of all "
                "processes.",
                hint="Export it without --client and --no-align, and use them to read it.",
            )
        with finalised(run, path.parent, job) as whole, zipfile.ZipFile(path, "x") as archive:
            crcs = dict(_add_files(archive, whole.path))
            _add_summary(archive, whole, crcs)
            with_page = _add_page(archive, whole, job)
            facts = {"format": _FORMAT, "version": VERSION, "notes": job.notes}
            with _member(archive, FACTS) as member:
                member.write((json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode())
            job.counts["files"] = len(archive.namelist())
            job.counts["rows"] = sum(whole.record.rows.values())
            job.counts["pages"] = int(with_page)


def _member(archive: zipfile.ZipFile, name: str, size: int | None = None) -> BinaryIO:
    """Open a new member for writing; one of unknown size may get larger than 2 GiB."""
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = _ATTRIBUTES
    info.file_size = size or 0
    return archive.open(info, "w", force_zip64=size is None)  # type: ignore[return-value]


def _write(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    with _member(archive, name, len(data)) as member:
        member.write(data)


def _add_files(archive: zipfile.ZipFile, folder: Path) -> Iterator[tuple[str, int]]:
    """Add the files of a run but its summary; yield their names and checksums."""
    for name in files_of(folder):
        if is_summary(name):
            continue
        with open_inside(folder, *name.split("/")) as file:
            size = os.fstat(file.fileno()).st_size
            with _member(archive, name, size) as member:
                while block := file.read(BLOCK):
                    member.write(block)
        yield name, archive.getinfo(name).CRC


def _add_summary(archive: zipfile.ZipFile, run: Run, crcs: Mapping[str, int]) -> None:
    """Add the summary, for the files as a reader of the bundle sees them."""
    parts = stored_parts(run)
    if parts is None:
        return
    names = [name for name in crcs if is_read(name)]
    files = {name: FileState(archive.getinfo(name).file_size, MODIFIED_NS) for name in names}
    listed = RunFiles(run.path, files, _folders(names), 0, regular=True)
    with suppress(OSError, ValueError):  # it would be too large: readers compute it
        data = summary_bytes(listed, crcs, parts)
        _write(archive, f"{PARQUET}/{SUMMARY}", data)


def _folders(names: Iterable[str]) -> frozenset[str]:
    """Return the folders of files."""
    split: list[list[str]] = [name.split("/") for name in names]
    return frozenset("/".join(parts[:n]) for parts in split for n in range(1, len(parts)))


def _add_page(archive: zipfile.ZipFile, run: Run, job: Job) -> bool:
    """Add the page; return False, with a note, if it cannot be made."""
    pieces: Any = page_pieces(run)
    try:
        first = next(pieces)
    except InterruptedQueryError:
        raise
    except StrataError as error:
        job.note(f"The page of the run is missing: {error.message}")
        return False
    with _member(archive, PAGE) as member:
        member.write(first)
        for piece in pieces:
            member.write(piece)
    return True
