"""Files that others wrote while a run went on, added to that run once it is on record.

Each kind of file is a row of `KINDS`: how it is recognised, and what adds it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from dask_strata.errors import ImportedDataError, StrataError, UsageError
from dask_strata.importers.added import Added, Progress
from dask_strata.importers.darshan.log import is_log
from dask_strata.importers.profiles.yappi_files import ENDINGS, is_profile_head
from dask_strata.store.bulk_writer import Addition
from dask_strata.store.reader import Record, read_record
from dask_strata.store.segments import segment_state


class Adder(Protocol):
    """Adds files of one kind."""

    def __call__(  # noqa: D102, PLR0913
        self,
        files: Sequence[Path],
        addition: Addition,
        record: Record,
        process: str,
        progress: Progress,
        *,
        others: bool = False,
    ) -> Added: ...


@dataclass(frozen=True)
class Kind:
    """A kind of file that can be added to a run.

    Attributes
    ----------
    suffixes : tuple of str
        Endings of its names.
    load : callable
        Imports and returns the function that adds such files.
    extra : str
        Optional extra to install if that import fails.
    recognise : callable
        Returns whether the first bytes of a file are of this kind.
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
            A package that it needs is not installed.
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
) -> Added:
    """Add files to a run: all of them, or, if it is interrupted, none.

    Parameters
    ----------
    run : Path
        The run's folder.
    paths : sequence of Path
        Files; or folders, of which all files that have a known ending are meant: the others
        are counted only.
    progress : Progress, optional
        Told how far it is.
    others : bool, optional
        Whether files are kept that are of no process of the run, nor of its time.

    Raises
    ------
    NotARunError, NewerRunError
        It is no run, or one of a later version.
    UsageError
        A path does not exist.
    StrataError
        The run is still being recorded, or cannot be written.
    """
    record = read_record(run)
    if any(segment_state(s) == "recording" for s in record.segments):
        raise StrataError(
            f"{run} is still being recorded.",
            hint="Import when the run has ended: only then it is known whose files these are.",
        )
    added = Added()
    files = _sorted_out(paths, added)
    addition = Addition(run)
    started = time.time_ns()
    process = f"import-{addition.name}"
    try:
        for kind, mine in files.items():
            add = KINDS[kind].add()
            told = progress or (lambda *_: None)
            added.absorb(add(mine, addition, record, process, told, others=others))
        if added.rows or added.noted:
            addition.write_rows("processes", [_importer(process, started)])
            addition.finish()
    except (OSError, pa.ArrowException) as error:
        raise ImportedDataError(
            f"{run} could not be added to: {getattr(error, 'strerror', None) or error}.",
            hint="The run is as it was. Check permissions and free space.",
        ) from error
    finally:
        addition.discard()
    return added


def _importer(process: str, started: int) -> dict[str, object]:
    return {
        "process": process,
        "role": "imported",
        "start": started,
        "stop": time.time_ns(),
        "exit_reason": "complete",
        "transport": "import",
    }


def _sorted_out(paths: Sequence[Path], added: Added) -> dict[str, list[Path]]:
    """Return the files by kind, each once; note those of no kind."""
    files: dict[str, dict[Path, None]] = {}
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path} does not exist.")
        if path.is_dir():
            kinds = {file: _by_name(file) for file in _walk(path)}
            strange = sum(1 for kind in kinds.values() if kind is None)
            if strange:
                added.passed[str(path)] = strange
        else:
            # To open a pipe or a device may take for ever.
            kinds = {path: (_by_name(path) or _by_content(path)) if path.is_file() else None}
            if kinds[path] is None:
                added.unknown.append(str(path))
        for file, kind in kinds.items():
            if kind is not None:
                files.setdefault(kind, {})[file.absolute()] = None
    return {kind: list(some) for kind, some in files.items()}


def _walk(folder: Path) -> list[Path]:
    found = []
    for home, folders, names in os.walk(folder):
        folders.sort()
        found += [Path(home, name) for name in sorted(names)]
    return [path for path in found if path.is_file()]


def _by_name(path: Path) -> str | None:
    return next((k for k, kind in KINDS.items() if path.name.endswith(kind.suffixes)), None)


def _by_content(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError:
        return None
    return next((k for k, kind in KINDS.items() if kind.recognise(head)), None)
