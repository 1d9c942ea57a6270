"""Add files of other programs, such as Darshan's logs, to a run that has ended.

Each kind of file is an entry of `KINDS`: how it is recognised, and the function that adds it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from dask_strata.errors import ImportedDataError, StrataError, UsageError
from dask_strata.importers.darshan.log import is_log
from dask_strata.importers.profiles.yappi_files import ENDINGS, is_profile_head
from dask_strata.importers.results import ImportResult, ImportTarget, Progress
from dask_strata.store.bulk_writer import Addition
from dask_strata.store.reader import read_record
from dask_strata.store.segments.read import segment_state

#: Adds files of one kind to a run, and returns the counts.
Adder = Callable[[Sequence[Path], ImportTarget], ImportResult]

#: Enough of a file's beginning to recognise every kind.
_HEAD_BYTES = 4096


@dataclass(frozen=True)
class Kind:
    """A kind of file that can be added to a run.

    Attributes
    ----------
    suffixes : tuple of str
        Endings of the names of such files.
    load : callable
        Imports and returns the function that adds such files.
    extra : str
        Optional extra of dask-strata to install if that import fails.
    recognise : callable
        Returns whether the first bytes of a file show this kind.
    """

    suffixes: tuple[str, ...]
    load: Callable[[], Adder]
    extra: str
    recognise: Callable[[bytes], bool] = lambda _head: False

    def add(self) -> Adder:
        """Return the function that adds such files.

        Raises
        ------
        StrataError
            A package that the function needs is not installed.
        """
        try:
            return self.load()
        except ModuleNotFoundError as error:
            raise StrataError(
                f"These files need {error.name}, which is not installed here.",
                hint=f"pip install 'dask-strata[{self.extra}]'",
            ) from error


def _darshan() -> Adder:
    from dask_strata.importers.darshan.importer import add_logs

    return add_logs


def _profiles() -> Adder:
    from dask_strata.importers.profiles.importer import add_profiles

    return add_profiles


KINDS: dict[str, Kind] = {
    "darshan": Kind((".darshan",), _darshan, "darshan", is_log),
    "profile": Kind(ENDINGS, _profiles, "yappi", is_profile_head),
}


def add_files(
    run: Path, paths: Sequence[Path], progress: Progress | None = None, *, others: bool = False
) -> ImportResult:
    """Add files to a run. An interrupted import adds nothing.

    Parameters
    ----------
    run : Path
        The run's folder.
    paths : sequence of Path
        Files and folders. Of a folder, the files with a supported ending are added and the
        others are counted.
    progress : Progress, optional
        Called with the bytes read so far and the bytes in total.
    others : bool, optional
        Whether to keep files that match neither the run's processes nor its time.

    Returns
    -------
    ImportResult
        Counts, and the files that could not be read.

    Raises
    ------
    NotARunError, NewerRunError
        The folder is not a run, or is a run of a later version.
    UsageError
        A path does not exist.
    StrataError
        The run is still being recorded, or cannot be written.
    """
    record = read_record(run)
    if any(segment_state(s) == "recording" for s in record.segments):
        raise StrataError(
            f"{run} is still being recorded.",
            hint="Import when the run has ended: files are matched to its complete list of "
            "processes.",
        )
    result = ImportResult()
    files_by_kind = _by_kind(paths, result)
    addition = Addition(run)
    started = time.time_ns()
    process = f"import-{addition.name}"
    target = ImportTarget(addition, record, process, progress or (lambda *_: None), others)
    try:
        for kind, files in files_by_kind.items():
            result.absorb(KINDS[kind].add()(files, target))
        if result.rows or result.log_rows:
            addition.write_rows("processes", [_importing_process(process, started)])
            addition.finish()
    except (OSError, pa.ArrowException) as error:
        raise ImportedDataError(
            f"Nothing was added to {run}: {getattr(error, 'strerror', None) or error}.",
            hint="The run is unchanged. Check permissions and free space.",
        ) from error
    finally:
        addition.discard()
    return result


def _importing_process(process: str, started: int) -> dict[str, object]:
    """Return the row of ``processes`` for the importing process."""
    return {
        "process": process,
        "role": "imported",
        "start": started,
        "stop": time.time_ns(),
        "exit_reason": "complete",
        "transport": "import",
    }


def _by_kind(paths: Sequence[Path], result: ImportResult) -> dict[str, list[Path]]:
    """Return the files by kind, each once; report the others in the result."""
    by_kind: dict[str, dict[Path, None]] = {}
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path} does not exist.")
        if path.is_dir():
            kinds = {file: _kind_by_name(file) for file in _walk(path)}
            n_skipped = sum(1 for kind in kinds.values() if kind is None)
            if n_skipped:
                result.skipped[str(path)] = n_skipped
        else:
            # Opening a pipe or a device may block for ever.
            kind = (_kind_by_name(path) or _kind_by_content(path)) if path.is_file() else None
            kinds = {path: kind}
            if kind is None:
                result.unrecognised.append(str(path))
        for file, kind in kinds.items():
            if kind is not None:
                by_kind.setdefault(kind, {})[file.absolute()] = None
    return {kind: list(files) for kind, files in by_kind.items()}


def _walk(folder: Path) -> list[Path]:
    """Return the regular files in a folder and its subfolders, sorted."""
    found = []
    for parent, folders, names in os.walk(folder):
        folders.sort()
        found += [Path(parent, name) for name in sorted(names)]
    return [path for path in found if path.is_file()]


def _kind_by_name(path: Path) -> str | None:
    return next((k for k, kind in KINDS.items() if path.name.endswith(kind.suffixes)), None)


def _kind_by_content(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return None
    return next((k for k, kind in KINDS.items() if kind.recognise(head)), None)
