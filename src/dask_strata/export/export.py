"""One export: checks of what was asked for, the output in one piece or not at all, and notes."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

from dask_strata.errors import StrataError, UsageError
from dask_strata.export.exporter import Exporter, Job, Progress
from dask_strata.export.registry import exporter
from dask_strata.run import Run
from dask_strata.run.duckdb_session import TIME_TYPE
from dask_strata.store.copies.place import shown
from dask_strata.store.manifest import MANIFEST
from dask_strata.store.zipped.copy import is_current

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_HTTP = re.compile(r"https?://", re.IGNORECASE)

#: Classes of facts that an export can leave out, as in the setting ``leave-out``.
CAN_LEAVE_OUT = ("code", "paths", "hosts", "users", "errors", "environment", "arguments")


@dataclass(frozen=True)
class Exported:
    """What an export has written.

    Attributes
    ----------
    path : str
        The file, the folder or the URL.
    format : str
        Name of the format.
    size_bytes : int or None
        Bytes of the file, or of all files in the folder; None if it was sent.
    counts : dict of str to int
        Number of each kind of object in the output.
    notes : tuple of str
        What is missing in the output, left out or aggregated.
    """

    path: str
    format: str
    size_bytes: int | None
    counts: dict[str, int]
    notes: tuple[str, ...]


def export(  # noqa: PLR0913  each of them is a choice of the user
    run: Run,
    to: str,
    path: str | os.PathLike[str],
    *,
    options: Collection[str] = (),
    values: Mapping[str, str] | None = None,
    leave_out: Collection[str] = (),
    progress: Progress | None = None,
) -> Exported:
    """Export a run.

    The output appears at its place when it is complete; after an error or Ctrl-C nothing is there.

    Parameters
    ----------
    run : Run
        The run.
    to : str
        Name of the format.
    path : str or path
        File to write, or a new or empty folder. A file that is there is replaced, but never the
        bundle that the run is read from. For formats that can be sent, an ``http://`` or
        ``https://`` URL.
    options : collection of str, optional
        Names of options of the format.
    values : mapping of str to str, optional
        Choices with a value.
    leave_out : collection of str, optional
        Classes of facts that are replaced, as in the setting ``leave-out``.
    progress : callable, optional
        Is called with the rows that were read, and the rows in all or None.

    Returns
    -------
    Exported

    Raises
    ------
    UsageError
        There is no such format or option, or the path cannot be used.
    StrataError
        The run cannot be exported, or the output cannot be written.
    """
    chosen = exporter(to)
    job = Job(frozenset(options), dict(values or {}))
    job.on_progress = progress or job.on_progress
    _check_choices(chosen, job, leave_out)
    url = str(path) if _SCHEME.match(str(path)) else None
    if url is not None and not (chosen.url_targets and _HTTP.match(url)):
        raise UsageError(
            f"{to} cannot be sent to {shown(url)}.", hint="Give a file or folder: -o PATH"
        )
    target = None if url is not None else _checked_target(run, chosen, Path(path))
    _note_gaps(run, job)
    with _exported_run(run, leave_out, job) as exported:
        if exported.client is not None:
            job.note(f"Only tasks of the client {exported.client} are in this export.")
        if target is None:
            chosen.send(exported, str(url), job)
            return Exported(shown(str(url)), to, None, job.counts, tuple(job.notes))
        _write_whole(chosen, exported, target, job)
    return Exported(str(target), to, _size(target), job.counts, tuple(job.notes))


def _check_choices(chosen: Exporter, job: Job, leave_out: Collection[str]) -> None:
    known = [option.name for option in chosen.options]
    for name in sorted(job.options):
        if name not in known:
            offer = f"It has: {', '.join(known)}" if known else "It has none."
            raise UsageError(f"The format {chosen.name} has no option {name!r}.", hint=offer)
    for name in job.values:
        if name not in chosen.value_names:
            raise UsageError(f"The format {chosen.name} takes no {name}.")
    for name in leave_out:
        if name not in CAN_LEAVE_OUT:
            raise UsageError(
                f"{name!r} cannot be left out.", hint=f"Choose of: {', '.join(CAN_LEAVE_OUT)}"
            )


def _checked_target(run: Run, chosen: Exporter, path: Path) -> Path:
    """Return the absolute path of the output.

    Raises
    ------
    UsageError
        It cannot be used.
    StrataError
        It cannot be looked at: the name is too long, or its folder is forbidden.
    """
    try:
        return _usable_target(run, chosen, path)
    except OSError as error:
        raise _unwritable(path, error) from error


def _usable_target(run: Run, chosen: Exporter, path: Path) -> Path:
    target = Path(os.path.abspath(path))
    is_folder = not chosen.suffix
    place = target.parent.resolve() / target.name  # a link may lead into the run's folder
    if any(each.is_relative_to(run.path.resolve()) for each in (target, place)):
        raise UsageError(
            f"{path} is inside of the run's folder, which an export does not change.",
            hint="Give a path elsewhere: -o PATH",
        )
    if _is_bundle_of(run, target):
        raise UsageError(
            f"{path} is the bundle that is exported, which an export does not change.",
            hint="Give another path: -o PATH",
        )
    if not target.parent.is_dir():
        raise UsageError(f"The folder {target.parent} does not exist.", hint="Create it first.")
    if is_folder and target.is_dir() and any(target.iterdir()):
        raise UsageError(
            f"{path} is a folder that is not empty.", hint="Give a new folder: -o FOLDER"
        )
    if is_folder and target.exists() and not target.is_dir():
        raise UsageError(
            f"{path} is a file, and {chosen.name} is a folder.", hint="Give a new folder: -o FOLDER"
        )
    if not is_folder and target.is_dir():
        what = "a run" if (target / MANIFEST).exists() else "a folder"
        raise UsageError(
            f"{path} is {what}, and {chosen.name} is a file.",
            hint=f"Give a file: -o NAME{chosen.suffix}",
        )
    if target.exists() and not target.is_file() and not target.is_dir():
        raise UsageError(f"{path} is a device or a pipe.", hint="Give the path of a file.")
    return target


def _is_bundle_of(run: Run, target: Path) -> bool:
    """Return whether a path is that of the bundle that a run is read from."""
    return run.bundle is not None and target.exists() and is_current(run.bundle, target)


def _note_gaps(run: Run, job: Job) -> None:
    """Note that the record is not complete, so that the output is not, either."""
    if run.state == "recording":
        job.note("The run was still being recorded: what followed is not in this export.")
    elif run.state == "cut":
        job.note(
            "The recording was cut off: the scheduler's process ended without its last rows, "
            "which are not in this export."
        )
    lost = run.n_rows("losses")
    if lost:
        job.note(
            f"The record is not complete: its table losses has {lost:,} "
            f"{'entry' if lost == 1 else 'entries'}; `dask-strata check` explains them."
        )
    if TIME_TYPE != "timestamptz_ns":
        job.note(
            f"Times are cut to microseconds: DuckDB {duckdb.__version__} has no finer ones, "
            "version 2.0 has."
        )
    if not run.align:
        job.note("Times are those of each process's own clock: they were not aligned.")


def _exported_run(run: Run, leave_out: Collection[str], job: Job) -> AbstractContextManager[Run]:
    """Return a context with the run as it is exported: without what is left out."""
    if not leave_out:
        return nullcontext(run)
    from dask_strata.export.unrecorded import without

    names = [name for name in CAN_LEAVE_OUT if name in leave_out]
    job.note(f"Left out, or replaced by hashes: {', '.join(names)}.")
    return without(run, names)


def _write_whole(chosen: Exporter, run: Run, target: Path, job: Job) -> None:
    """Write the output beside its place, and rename it when it is complete."""
    made = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        chosen.write(run, made, job)
        if made.is_dir() and target.is_dir():
            target.rmdir()  # it is empty
        made.replace(target)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        if isinstance(error.filename, str) and Path(error.filename).is_relative_to(run.path):
            raise StrataError(
                f"{error.filename} cannot be read: {error.strerror or error}.",
                hint="Export again: the run may have been compacted at that moment.",
            ) from error
        raise _unwritable(target, error) from error
    finally:
        _remove(made)


def _unwritable(path: Path, error: OSError) -> StrataError:
    return StrataError(
        f"{path} cannot be written: {error.strerror or error}.",
        hint="Check permissions and free space. The run is unchanged.",
    )


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
