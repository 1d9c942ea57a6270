"""Files that others wrote while a run went on, added to that run once it is on record.

Each kind of file is a row of `KINDS`: how it is recognised, and what adds it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pyarrow as pa

from dask_strata.errors import ImportedDataError, StrataError, UsageError
from dask_strata.importers.added import Added, Progress
from dask_strata.importers.darshan_log import is_log
from dask_strata.store.bulk import Addition
from dask_strata.store.reader import Record, read_record
from dask_strata.store.segments import segment_state

#: Adds files of one kind: files, addition, record of the run, name of the process, progress.
Adder = Callable[[Sequence[Path], Addition, Record, str, Progress], Added]

#: So many names of files that nobody knows are told.
_NAMES_TOLD = 5


@dataclass(frozen=True)
class Kind:
    """A kind of file: endings of its names, what adds it, how its contents begin.

    ``adder`` is module and name, imported when there is such a file; ``extra`` is what to
    install if that fails.
    """

    suffixes: tuple[str, ...]
    adder: tuple[str, str]
    extra: str
    recognise: Callable[[bytes], bool] = lambda _head: False

    def add(self) -> Adder:
        """Return what adds such files. Raises StrataError if something is not installed."""
        module, name = self.adder
        try:
            found: Adder = getattr(import_module(f"{__package__}.{module}"), name)
        except ModuleNotFoundError as error:
            raise StrataError(
                f"These files need {error.name}, which is not installed here.",
                hint=f"pip install 'dask-strata[{self.extra}]'",
            ) from error
        return found


KINDS: dict[str, Kind] = {
    "darshan": Kind((".darshan",), ("darshan", "add_logs"), "darshan", is_log),
}


def add_files(run: Path, paths: Sequence[Path], progress: Progress | None = None) -> Added:
    """Add files to a run: all of them, or, if it is interrupted, none.

    Parameters
    ----------
    run : Path
        The run's folder.
    paths : sequence of Path
        Files; or folders, of which all files that have a known ending are meant.
    progress : Progress, optional
        Told how far it is.

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
    files, unknown = _sorted_out(paths)
    added = Added(unknown=unknown)
    addition = Addition(run)
    started = time.time_ns()
    process = f"import-{addition.name}"
    try:
        for kind, mine in files.items():
            add = KINDS[kind].add()
            added.absorb(add(mine, addition, record, process, progress or (lambda *_: None)))
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


def _sorted_out(paths: Sequence[Path]) -> tuple[dict[str, list[Path]], list[str]]:
    """Return the files by kind, each once, and those of no kind."""
    files: dict[str, dict[Path, None]] = {}
    unknown: list[str] = []
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path} does not exist.")
        if path.is_dir():
            strange = 0
            for file in _walk(path):
                kind = _by_name(file)
                if kind is None:
                    strange += 1
                    if strange <= _NAMES_TOLD:
                        unknown.append(str(file))
                else:
                    files.setdefault(kind, {})[file.absolute()] = None
            if strange > _NAMES_TOLD:
                unknown.append(f"{strange - _NAMES_TOLD:,} more in {path}")
        else:
            kind = _by_name(path) or _by_content(path)
            if kind is None:
                unknown.append(str(path))
            else:
                files.setdefault(kind, {})[path.absolute()] = None
    return {kind: list(some) for kind, some in files.items()}, unknown


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
