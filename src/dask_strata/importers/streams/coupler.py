"""Events of the Mofka-Dask coupler: written as its CSV files, which `importers.mofka` imports."""

from __future__ import annotations

import csv
import json
import math
import secrets
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dask_strata.importers.mofka.columns import FIELDS, NAMES
from dask_strata.importers.mofka.importer import ImportedRun, import_files
from dask_strata.store.safe_files import create_run_folder

#: Names that an event of a role has, and names that it has not.
_ROLES: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "worker_transfer": (frozenset({"start", "stop", "keys", "type"}), frozenset()),
    "graph": (frozenset({"dependencies", "time"}), frozenset()),
    "scheduler_transition": (frozenset({"key", "start", "finish", "stimulus_id"}), frozenset()),
    "worker_transition": (frozenset({"key", "start", "finish"}), frozenset({"stimulus_id"})),
    "client": (frozenset({"client", "action", "time"}), frozenset({"worker"})),
    "worker": (frozenset({"worker", "action", "time"}), frozenset({"client"})),
}

#: Kinds of columns whose missing values may be the text of NaN.
_NUMBERS = ("time", "int", "number")

#: Events of a role before its file is written: they show which columns it has.
_FIRST = 1000

#: Names of an event that later events add, at most.
_LATE_NAMES = 10


class _Digits(str):
    """A number as its text: a time keeps all of its digits."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the number, for the text of a collection that contains it."""
        return str(self)


class CouplerEvents:
    """The coupler's events in a stream.

    Parameters
    ----------
    runs : Path
        Folder in which the run appears.

    Attributes
    ----------
    n : int
        Number of events.
    """

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._folder = runs / f".import-{secrets.token_hex(4)}"
        self._files: dict[str, _CsvFile] = {}
        self.n = 0

    def add(self, data: bytes) -> bool:
        """Keep an event; return whether the bytes are one.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        try:
            event = json.loads(data, parse_float=_Digits, parse_int=_Digits)
        except (ValueError, RecursionError):
            return False
        role = role_of(event)
        if role is None:
            return False
        if role not in self._files:
            create_run_folder(self._folder, "owner")
            self._files[role] = _CsvFile(role, self._folder / NAMES[role][0])
        self._files[role].add(event)
        self.n += 1
        return True

    def finish(self, name: str, origin: str, *, strict: bool) -> ImportedRun:
        """Make a run from the events; see `importers.mofka.importer.import_files`.

        Parameters
        ----------
        name : str
            Name of the run.
        origin : str
            Address of the stream, without passwords.
        strict : bool
            Whether an event that cannot be understood is an error.
        """
        for file in self._files.values():
            file.close()
        files = {role: file.path for role, file in self._files.items()}
        made = import_files(files, self._runs, name=name, strict=strict, origin=origin)
        late = tuple(
            f"{file.path.name} lacks {column} of {n:,} events, which the first {_FIRST:,} have not"
            for file in self._files.values()
            for column, n in file.late.items()
        )
        return replace(made, unreadable=(*made.unreadable, *late))

    def discard(self) -> None:
        """Delete the files."""
        for file in self._files.values():
            file.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def role_of(event: object) -> str | None:
    """Return the role of an event of the coupler, a key of `columns.NAMES`; None of other values.

    >>> role_of({"key": "x", "start": "waiting", "finish": "memory", "time": 1.5})
    'worker_transition'
    """
    if not isinstance(event, Mapping) or "strata" in event:
        return None
    for role, (present, absent) in _ROLES.items():
        if present <= event.keys() and not absent & event.keys():
            return role
    return None


class _CsvFile:
    """A file of the coupler; its columns are the known ones, and those of the first events."""

    def __init__(self, role: str, path: Path) -> None:
        self.path = path
        self._kinds = {field.name: field.kind for field in FIELDS[role]}
        self._first: list[Mapping[str, Any]] | None = []
        self._columns: list[str] = []
        self._known: frozenset[str] = frozenset()
        self._file: Any = None
        self._writer: Any = None
        #: Values of columns that the file does not have, by column.
        self.late: Counter[str] = Counter()

    def add(self, event: Mapping[str, Any]) -> None:
        if self._first is not None:
            self._first.append(event)
            if len(self._first) >= _FIRST:
                self._begin()
            return
        self._write(event)

    def _begin(self) -> None:
        first, self._first = self._first or [], None
        present = {str(name): None for event in first for name in event}
        self._columns = [*present, *(name for name in self._kinds if name not in present)]
        self._known = frozenset(self._columns)
        # Text that UTF-8 lacks is set aside by the reader, with its row.
        self._file = self.path.open("w", encoding="utf-8", errors="surrogatepass", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerow(self._columns)
        for event in first:
            self._write(event)

    def _write(self, event: Mapping[str, Any]) -> None:
        self._writer.writerow([self._cell(name, event.get(name)) for name in self._columns])
        if not event.keys() <= self._known:
            self.late.update(list(event.keys() - self._known)[:_LATE_NAMES])

    def _cell(self, name: str, value: Any) -> str:
        """Return a value as the coupler's consumer writes it."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        if isinstance(value, str):
            is_nan = self._kinds.get(name) in _NUMBERS and value.lower() in {"nan", "none"}
            return "" if is_nan else value
        return repr(value)

    def close(self) -> None:
        """Write the remaining events."""
        if self._first:
            self._begin()
        if self._file is not None:
            self._file.close()
