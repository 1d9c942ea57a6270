"""Add profiles that Yappi or Python saved to a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dask_strata.errors import ImportedDataError
from dask_strata.importers.profiles.yappi_files import check_size, read_profile
from dask_strata.importers.results import (
    ImportLog,
    ImportResult,
    ImportTarget,
    file_digest,
    imported_digests,
)
from dask_strata.store.manifest import PROFILES

KIND = "profile"


def add_profiles(files: Sequence[Path], target: ImportTarget) -> ImportResult:
    """Add the functions of some profiles to a run.

    A profile does not identify the process that it is of, so `ImportTarget.keep_others` has no
    effect. Profiles that the run saved itself are left out.

    Parameters
    ----------
    files : sequence of Path
        The profiles: pstat or callgrind.
    target : ImportTarget
        The run.

    Returns
    -------
    ImportResult
        Counts, and the files that could not be read.

    Raises
    ------
    OSError
        The run's folder cannot be written.
    """
    result = ImportResult()
    log = ImportLog(KIND, target, result)
    digests = imported_digests(target.record)
    saved_by_run = (target.record.folder / PROFILES).absolute()
    n_own = done = 0
    sizes = [path.stat().st_size if path.exists() else 0 for path in files]
    for path, nbytes in zip(files, sizes, strict=True):
        done += nbytes
        if saved_by_run in path.absolute().parents:
            n_own += 1
            continue
        digest = None
        try:
            check_size(path)
            digest = file_digest(path)
            if digest in digests:
                result.already_imported += 1
                continue
            rows = read_profile(path)
            digests.add(digest)
        except ImportedDataError as error:
            log.refuse_file(path, str(error).removeprefix(f"{path} ").replace("\n", " "), digest)
            continue
        except OSError as error:
            log.refuse_file(path, f"cannot be read: {error.strerror or error}", None)
            continue
        target.addition.write_rows("functions", [row | {"process": target.process} for row in rows])
        log.add_file(path, digest, kept=len(rows))
        result.files += 1
        result.rows += len(rows)
        target.progress(done, sum(sizes))
    if n_own:
        result.notes.append(f"{n_own:,} left out because the run itself saved them")
    return result
