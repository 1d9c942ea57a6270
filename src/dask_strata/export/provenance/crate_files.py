"""The files that a run read and wrote: described, and hashed where they are at hand."""

from __future__ import annotations

import hashlib
import mimetypes
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from dask_strata.export.exporter import Job
from dask_strata.export.provenance.facts import Facts
from dask_strata.export.provenance.identifiers import iri
from dask_strata.export.provenance.reading import Reading

#: Files that a crate lists: more would make a metadata file that no tool opens.
MOST_FILES = 100_000

#: Bytes that are hashed in all.
MOST_BYTES = 32 << 30

_BLOCK = 1 << 20

#: Media types by the end of a name: Python's own list, without that of the machine.
_TYPES = mimetypes.MimeTypes(filenames=())

#: Files with the last moment at which the run read or wrote them; null if that is not known.
_QUERY = f"""
    with sizes as (
        select uri, case when min(file_bytes) = max(file_bytes) then max(file_bytes) end as bytes
        from file_opens group by uri
    ), moments as (
        select i.uri, case when bool_and(a.stop is not null) then max(epoch_ns(a.stop)) end as stop
        from task_inputs i left join attempts a using (attempt)
        where i.kind = 'seen' group by i.uri
    )
    select i.uri, bool_or(i.mode <> 'write') as read, bool_or(i.mode <> 'read') as written,
           min(s.bytes) as bytes, min(m.stop) as stop
    from task_inputs i left join sizes s using (uri) left join moments m using (uri)
    where i.uri is not null group by i.uri order by i.uri limit {MOST_FILES + 1}
"""  # noqa: S608  a number of this module

#: States of files. Absent ones have only the size on record.
HASHED, SIZED, CHANGED, FOLDER, ABSENT = "hashed", "sized", "changed", "folder", "absent"


@dataclass
class UsedFile:
    """A file or store that tasks read or wrote.

    Attributes
    ----------
    uri : str
        Its path or URL.
    read, written : bool
        What tasks did with it.
    state : str
        hashed; sized (at hand, and not hashed); changed (since the run); folder; or absent.
    size : int or None
        Bytes: as recorded, or as at hand.
    modified : str or None
        Time of its last change, if it is at hand.
    sha256 : str or None
        Hash of its bytes, if it is as the run left it.
    """

    uri: str
    read: bool
    written: bool
    state: str = ABSENT
    size: int | None = None
    modified: str | None = None
    sha256: str | None = None
    #: Identifier in the crate.
    id: str = field(init=False, default="")

    def identify(self) -> None:
        """Set the identifier: that of a folder ends with a slash."""
        found = iri(self.uri)
        self.id = f"{found.rstrip('/')}/" if self.state == FOLDER else found

    @property
    def entity(self) -> dict[str, Any]:
        """Its entity in a crate."""
        description = {
            CHANGED: "Changed since the run: size and hash of what the run used are not known.",
            ABSENT: "Not at hand when the crate was written.",
        }.get(self.state)
        uses = {"#input-files": self.read, "#output-files": self.written}
        is_folder = self.state == FOLDER
        return {
            "@id": self.id,
            "@type": "Dataset" if is_folder else "File",
            "name": self.uri.rstrip("/").rpartition("/")[2] or self.uri,
            "description": description,
            "encodingFormat": None if is_folder else _TYPES.guess_type(self.uri)[0],
            "contentSize": None if self.size is None else str(self.size),
            "dateModified": self.modified,
            "sha256": self.sha256,
            "exampleOfWork": [{"@id": use} for use, does in uses.items() if does and not is_folder],
        }


def used_files(reading: Reading, facts: Facts, *, hashes: bool) -> list[UsedFile]:
    """Return the files that tasks read or wrote, sorted by name, and note missing hashes.

    Parameters
    ----------
    reading : Reading
        The run.
    facts : Facts
        Of the run.
    hashes : bool
        Whether files at hand are hashed.
    """
    rows = list(reading.columns(_QUERY))
    if len(rows) > MOST_FILES:
        n = reading.run.rows("select count(distinct uri) as n from task_inputs")[0]["n"]
        reading.job.note(f"Of {n:,} files, {MOST_FILES:,} are listed.")
    found = []
    budget = MOST_BYTES
    for uri, read, written, size, stop in rows[:MOST_FILES]:
        # Written files may be closed after the attempt.
        last = facts.stop_ns if written or stop is None else stop
        # The size on record is that before the first read, so not that after a write.
        each = UsedFile(uri, bool(read), bool(written), size=None if written else size)
        _look(each, last, budget if hashes else 0)
        budget -= (each.size or 0) if each.state == HASHED else 0
        each.identify()
        found.append(each)
    _note(reading.job, found, hashes=hashes)
    return found


def _note(job: Job, files: list[UsedFile], *, hashes: bool) -> None:
    for state, text in (
        (CHANGED, "Files that changed since the run are not hashed"),
        (ABSENT, "Files that are not at hand have no hash"),
        (SIZED, "Files beyond 32 GiB in all, or that cannot be read, are not hashed"),
    ):
        n = sum(each.state == state for each in files)
        if n and (hashes or state != SIZED):
            job.note(f"{text}: {n:,}.")
    if files and not hashes:
        job.note("Files were not hashed (--with no-hashes).")


def _look(file: UsedFile, last_ns: int | None, budget: int) -> None:
    """Look at a file; only regular files are opened: opening a device or a pipe has effects."""
    path = file.uri.removeprefix("file://") if file.uri.startswith("file:///") else file.uri
    if not path.startswith("/") or "\0" in path:
        return
    try:
        found = os.stat(path)  # noqa: PTH116  names of any bytes
    except (OSError, ValueError):
        return
    if stat.S_ISDIR(found.st_mode):
        file.state = FOLDER
        file.size = None
        return
    if not stat.S_ISREG(found.st_mode):
        return
    file.modified = _moment(found.st_mtime_ns)
    resized = not file.written and file.size is not None and file.size != found.st_size
    if resized or last_ns is None or found.st_mtime_ns > last_ns:
        file.state, file.size = CHANGED, None
        return
    file.state, file.size = SIZED, found.st_size
    if found.st_size <= budget:
        file.sha256 = _hash(path, found)
        file.state = SIZED if file.sha256 is None else HASHED


def _moment(ns: int) -> str:
    found = datetime.fromtimestamp(ns / 1e9, timezone.utc)
    return found.isoformat(timespec="milliseconds")


def _hash(path: str, expected: os.stat_result) -> str | None:
    """Return the hash of a file; None if it cannot be read, or is not the same any more."""
    digest = hashlib.sha256()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123  a descriptor
            for block in _blocks(file, expected):
                digest.update(block)
            same = _same(os.fstat(descriptor), expected)
    except OSError:
        return None
    return digest.hexdigest() if same else None


def _blocks(file: Any, expected: os.stat_result) -> Iterator[bytes]:
    if not _same(os.fstat(file.fileno()), expected):
        return
    while block := file.read(_BLOCK):
        yield block


def _same(found: os.stat_result, expected: os.stat_result) -> bool:
    def identity(of: os.stat_result) -> tuple[int, ...]:
        return of.st_dev, of.st_ino, stat.S_IFMT(of.st_mode), of.st_size, of.st_mtime_ns

    return identity(found) == identity(expected)
