"""A run as a finalised one, without a change of its folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from dask_strata.errors import InterruptedQueryError, StrataError
from dask_strata.export.exporter import Job
from dask_strata.run import Run, open_run
from dask_strata.run.finalise import finalise
from dask_strata.store.copies.growth import is_segment, run_files
from dask_strata.store.index import index_bytes, read_index
from dask_strata.store.manifest import ADDITIONS, INDEX, PARQUET
from dask_strata.store.safe_files import entries, open_inside, replace_inside
from dask_strata.store.segments.frames import whole_frames
from dask_strata.store.segments.read import segment_state

_BLOCK = 1 << 20

#: Memory of derived tables, in bytes: less makes the page of a million tasks slower, not smaller.
_WORKING_BYTES = 160 << 20


@contextmanager
def finalised(run: Run, scratch: Path, job: Job) -> Iterator[Run]:
    """Yield a run with all its rows in Parquet: of the run's folder, or of a temporary copy.

    Parameters
    ----------
    run : Run
        The run.
    scratch : Path
        Folder for a temporary copy.
    job : Job
        Receives a note if the run cannot be finalised.
    """
    if _is_finalised(run):
        yield _opened(run.path, run.location)
        return
    with tempfile.TemporaryDirectory(prefix=".dask-strata-", dir=scratch) as folder:
        copy = Path(folder) / "run"
        growing = {s.path.name for s in run.segments if segment_state(s) == "recording"}
        _copy(run.path, copy, growing)
        try:
            problem = finalise(copy).problem
        except InterruptedQueryError:
            raise
        except StrataError as error:
            problem = error.message
        if problem is not None:
            shown = problem.replace(str(copy), run.location)
            job.note(f"The run could not be finalised, so that reading it takes longer: {shown}")
        _end(copy)
        yield _opened(copy, run.location)


def _opened(folder: Path, location: str) -> Run:
    """Open a run in little memory; its page and messages have the place of the exported one."""
    made = open_run(folder)
    made.location = location
    made.working_bytes = _WORKING_BYTES
    return made


def files_of(folder: Path) -> list[str]:
    """Return the names of a run's files, without segments whose rows are all in Parquet.

    Parameters
    ----------
    folder : Path
        The run's folder.
    """
    known = {}
    with suppress(OSError, ValueError):
        known = {s.path.name: s.size for s in read_index(folder, PARQUET).segments}
    return [name for name in run_files(folder) if not _is_known(folder, name, known)]


def _is_known(folder: Path, name: str, known: dict[str, int]) -> bool:
    if not is_segment(name):
        return False
    with suppress(OSError):
        return (folder / name).lstat().st_size == known.get(Path(name).name)
    return False


def _is_finalised(run: Run) -> bool:
    """Return whether all rows of a run are in its Parquet, and no process may add more."""
    return (
        run.record.tables.finalised() is not None
        and not entries(run.path, ADDITIONS)
        and not any(is_segment(name) for name in files_of(run.path))
        and not any(segment_state(segment) == "recording" for segment in run.segments)
    )


def _copy(folder: Path, copy: Path, growing: Collection[str]) -> None:
    """Copy the files of a run, of segments that grow only whole frames."""
    copy.mkdir(mode=0o700)
    for name in run_files(folder):
        parts = name.split("/")
        target = copy.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_inside(folder, *parts) as file, target.open("wb") as made:
            status = os.fstat(file.fileno())
            left = status.st_size
            if is_segment(name) and parts[-1] in growing:
                left = whole_frames(file, 0, left, left)
            file.seek(0)
            while block := file.read(min(left, _BLOCK)):
                made.write(block)
                left -= len(block)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _end(copy: Path) -> None:
    """Note that processes that were alive do not write to the copy.

    A reader decides by their ids, or by the time of their last write, whether they are alive.
    """
    try:
        index = read_index(copy, PARQUET)
    except (OSError, ValueError):
        return
    for name in set(run_files(copy)) - set(files_of(copy)):
        (copy / name).unlink()
    ended = [
        replace(
            segment,
            modified=0.0,
            header={name: fact for name, fact in segment.header.items() if name != "pids"},
        )
        if segment_state(segment) == "recording"
        else segment
        for segment in index.segments
    ]
    if ended != index.segments:
        data = index_bytes(replace(index, segments=ended))
        replace_inside(copy, PARQUET, INDEX, data=data)
