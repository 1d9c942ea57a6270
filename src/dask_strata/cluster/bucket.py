"""Functions that workers run: look at the run's folder, and compute one bucket of a run.

Dask sends them by name, so that each worker runs those of its own version of dask-strata.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dask_strata.config import VERSION
from dask_strata.errors import StrataError
from dask_strata.run.derived import versions
from dask_strata.run.finalise import Computation, Files, stages
from dask_strata.store.finalise.tables import part_name
from dask_strata.store.parquet import open_part

#: File in the folder of temporary files; workers that see the same one see the same folder.
TOKEN = "token"  # noqa: S105  not a secret

#: Longest wait for files of other workers: network file systems show them with a delay.
_VISIBLE_SECONDS = 60.0


def build() -> str:
    """Return the version of dask-strata with a hash of its definitions of derived tables."""
    found = hashlib.sha256(repr(sorted(versions().items())).encode()).hexdigest()
    return f"{VERSION} (definitions {found[:8]})"


def look(scratch: str, token: str, expected: str, answer: str) -> str | None:
    """Return why this process cannot compute buckets of a run; None if it can.

    Parameters
    ----------
    scratch : str
        Folder of temporary files, in the run's folder.
    token : str
        Contents of the file `TOKEN` there.
    expected : str
        `build` of the client.
    answer : str
        Name of the file that this process writes there.
    """
    if build() != expected:
        return f"it has dask-strata {build()} instead of {expected}"
    try:
        if Path(scratch, TOKEN).read_text(encoding="ascii") != token:
            return f"{scratch} is another folder there"
        Path(scratch, answer).write_text(token, encoding="ascii")
    except OSError as error:
        return f"it cannot use {error.filename or scratch}: {error.strerror or error}"
    return None


@dataclass(frozen=True)
class Job:
    """A computation of derived tables, for workers.

    Attributes
    ----------
    run : str
        The run's folder.
    home : tuple of str
        Names of the folders from there to the new Parquet folder.
    run_id : str
        Id of the run.
    scratch : str
        Folder of temporary files, in the run's folder.
    token : str
        Contents of the file `TOKEN` there.
    build : str
        `build` of the client.
    """

    run: str
    home: tuple[str, ...]
    run_id: str
    scratch: str
    token: str
    build: str


def compute(job: Job, stage: int, bucket: int, n_files: Mapping[str, int]) -> Files:
    """Compute a stage for one bucket; return the rows and the checksum of each written file.

    Each file is renamed when it is complete: Dask may compute a bucket twice at the same time, if
    it loses the connection to a worker.

    Parameters
    ----------
    job : Job
        The computation.
    stage : int
        Number of the stage.
    bucket : int
        Number of the bucket.
    n_files : mapping of str to int
        Number of files of each table so far.

    Raises
    ------
    StrataError
        This process has another version, or does not see the folder.
    """
    own = Path(job.scratch, f"{bucket}-{secrets.token_hex(4)}")
    problem = look(job.scratch, job.token, job.build, f"{own.name}.seen")
    if problem is not None:  # workers that joined late were not checked before
        raise StrataError(f"A worker cannot compute a bucket: {problem}.")
    folder = Path(job.run, *job.home)
    _wait_for_files(folder, n_files)
    chosen = stages()[stage]
    own.mkdir()
    try:
        for name in chosen.written:
            (own / name).mkdir()
        part = open_part(Path(job.run), job.run_id, "Parquet", *job.home)
        # A task of Dask has one thread of its worker.
        computation = Computation(part, output=own, threads=1)
        written = computation.run(chosen, bucket)
        for name in written:
            (own / name / part_name(bucket)).replace(folder / name / part_name(bucket))
    finally:
        shutil.rmtree(own, ignore_errors=True)
    return written


def _wait_for_files(folder: Path, n_files: Mapping[str, int]) -> None:
    """Wait until this process sees all files of earlier stages.

    A list of too few files would not be an error by itself, but lack the rows of some keys.
    """
    deadline = time.monotonic() + _VISIBLE_SECONDS
    missing = set(n_files)
    while missing := {n for n in missing if len(list((folder / n).iterdir())) < n_files[n]}:
        if time.monotonic() > deadline:
            raise StrataError(
                f"A worker does not see all files of {min(missing)} in {folder}, "
                f"{_VISIBLE_SECONDS:g} s after other processes wrote them."
            )
        time.sleep(0.2)
