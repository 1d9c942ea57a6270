"""Profiles that Yappi or Python saved, into a run that is on record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dask_strata.errors import ImportedDataError
from dask_strata.importers.added import Added, Notes, Progress, digest_of
from dask_strata.importers.profiles.yappi_files import check_size, read_profile
from dask_strata.store.bulk_writer import Addition
from dask_strata.store.manifest import PROFILES
from dask_strata.store.reader import Record

KIND = "profile"


def add_profiles(  # noqa: PLR0913
    files: Sequence[Path],
    addition: Addition,
    record: Record,
    process: str,
    progress: Progress,
    *,
    others: bool = False,  # noqa: ARG001  a profile does not say whose it is
) -> Added:
    """Add the functions of some profiles to a run.

    Parameters
    ----------
    files : sequence of Path
        The profiles: pstat or callgrind.
    addition : Addition
        Gets the rows.
    record : Record
        The run.
    process : str
        The process that imports, for rows about the import.
    progress : Progress
        Told how far it is.

    Raises
    ------
    OSError
        The run's folder cannot be written.
    """
    added = Added()
    notes = Notes(KIND, addition, process, added)
    known = _digests(record)
    own = (record.folder / PROFILES).absolute()
    mine = 0
    for number, path in enumerate(files, 1):
        if own in path.absolute().parents:
            mine += 1
            continue
        digest = None
        try:
            check_size(path)
            digest = digest_of(path)
            if digest in known:
                added.again += 1
                continue
            rows = read_profile(path)
            known.add(digest)
        except ImportedDataError as error:
            notes.refuse(path, str(error).removeprefix(f"{path} ").replace("\n", " "), digest)
            continue
        except OSError as error:
            notes.refuse(path, f"cannot be read: {error.strerror or error}", None)
            continue
        addition.write_rows("functions", [row | {"process": process} for row in rows])
        notes.imported(path, digest, kept=len(rows))
        added.files += 1
        added.rows += len(rows)
        progress(number, len(files))
    if mine:
        added.said.append(f"{mine:,} left out that this run has saved itself")
    return added


def _digests(record: Record) -> set[str]:
    """Return the digests of files of which the run has something; a refused one is none."""
    rows = record.tables["imports"].select(["sha256", "kept"]).to_pylist()
    return {row["sha256"] for row in rows if row["kept"]} - {None}
