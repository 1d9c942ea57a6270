"""The manifest of a run: one small JSON file, written once when the recording starts."""

from __future__ import annotations

import json
import math
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from dask_strata.errors import NewerRunError, NotARunError
from dask_strata.schema import FORMAT_VERSION
from dask_strata.store.limits import MANIFEST_BYTES, TIME_NS
from dask_strata.store.safe_files import (
    RefusedError,
    create_file,
    create_run_folder,
    is_file,
    kind_of,
    read_inside,
    share_as,
)
from dask_strata.store.sync import sync_path

MANIFEST = "run.json"
SEGMENTS = "segments"
PARQUET = "parquet"

#: Name of the index in a Parquet folder.
INDEX = "index.json"

SUFFIX = ".seg"

#: End of the name of a bundle: a run and its page in one file.
BUNDLE_SUFFIX = ".strata.zip"

#: Folder of rows that were added to the run later, one folder per addition.
ADDITIONS = "additions"

#: Folder of profiles for other tools: pstat and callgrind files.
PROFILES = "profiles"
PROFILE_FORMS = ("pstat", "callgrind")

#: Folder of Darshan's logs, unless the settings name another one.
DARSHAN = "darshan"

#: Folder of imported rows that were set aside, unchanged, because they could not be parsed.
ASIDE = "aside"

#: Field of `run.json` with the run id.
_RUN_ID_FIELD = "run"


@dataclass(frozen=True)
class Manifest:
    """Contents of `run.json`.

    Attributes
    ----------
    run_id : str
        The run's id; the JSON field is ``run``.
    name : str
        The run's name, usually that of the script.
    created_ns : int
        When the recording started, in nanoseconds since the epoch.
    version : str
        Version of dask-strata that wrote the run.
    format : int
        Version of the file format.
    session : str or None
        The session that the run belongs to: runs of one `dask-strata record` share it.
    flush_interval_seconds : float
        Time between two flushes.
    scheduler : dict
        Identity of the scheduler: its id and address.
    only_client : str or None
        Dask's id of the client whose tasks alone are recorded; None for the tasks of all clients.
    imported_from : str or None
        Folder that an imported run was made from; None for a recorded one.
    named : bool
        Whether the name is the user's choice or that of the client's program. If not, readers
        prefer the name of the first recorded client's program.

    Examples
    --------
    >>> Manifest("0a1b2c3d", "pipeline", 0, "0.1.0").to_json()["run"]
    '0a1b2c3d'
    """

    run_id: str
    name: str
    created_ns: int
    version: str
    format: int = FORMAT_VERSION
    session: str | None = None
    flush_interval_seconds: float = 0.1
    scheduler: dict[str, Any] = field(default_factory=dict)
    imported_from: str | None = None
    named: bool = True
    only_client: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields of `run.json`, in the order in which the file has them."""
        facts = asdict(self)
        return {_RUN_ID_FIELD: facts.pop("run_id"), **facts}

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> Manifest:
        """Return the manifest with the fields of `run.json`; unknown fields are ignored.

        Raises
        ------
        TypeError
            A field without a default is missing.
        """
        known = cls.__dataclass_fields__.keys() - {"run_id"}
        fields = {name: value for name, value in facts.items() if name in known}
        if _RUN_ID_FIELD in facts:
            fields["run_id"] = facts[_RUN_ID_FIELD]
        return cls(**fields)

    def write(self, folder: Path, access: str = "owner") -> None:
        """Write `run.json`, all or nothing, and create the folders of the run and its segments.

        Parameters
        ----------
        folder : Path
            The run's folder.
        access : str, optional
            Value of the setting `access`, for a folder that does not exist.

        Raises
        ------
        OSError
            The folder cannot be written.
        """
        create_run_folder(folder, access)
        (folder / SEGMENTS).mkdir(exist_ok=True)
        temporary = folder / f".{MANIFEST}.{secrets.token_hex(4)}"
        text = json.dumps(self.to_json(), indent=2) + "\n"
        with os.fdopen(create_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(text.encode())
        share_as(folder, folder / SEGMENTS)
        temporary.replace(folder / MANIFEST)

    def validate(self) -> None:
        """Check types and ranges of the fields.

        Raises
        ------
        TypeError
            A field has a wrong type.
        ValueError
            A time or an interval is out of range.
        """
        optional = (self.session, self.imported_from, self.only_client)
        texts = (self.run_id, self.name, self.version, *(text or "" for text in optional))
        if not all(isinstance(text, str) for text in texts) or not isinstance(self.scheduler, dict):
            raise TypeError("a field has a wrong type")
        if not isinstance(self.named, bool):
            raise TypeError("a field has a wrong type")
        if type(self.created_ns) is not int or not 0 <= self.created_ns < TIME_NS:
            raise ValueError("created_ns is out of range")
        interval = float(self.flush_interval_seconds)
        if not math.isfinite(interval) or interval < 0:
            raise ValueError("flush_interval_seconds is out of range")

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read `run.json` of a run.

        Parameters
        ----------
        folder : Path
            The run's folder.

        Raises
        ------
        NotARunError
            There is no `run.json`, or it cannot be parsed.
        NewerRunError
            A later version wrote the run, in a format that this version cannot read.
        """
        text = _read_text(folder)
        try:
            manifest = cls.from_json(json.loads(text))
            version = int(manifest.format)
            if version <= FORMAT_VERSION:
                manifest.validate()
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            raise NotARunError(
                f"{folder / MANIFEST} is damaged: it is not the JSON that dask-strata writes.",
                hint="The segments beside it may be intact: restore run.json from a copy.",
            ) from None
        if version > FORMAT_VERSION:
            raise NewerRunError(
                f"{folder} was written by dask-strata {manifest.version} in format {version}; "
                f"this version reads up to {FORMAT_VERSION}.",
                hint="Upgrade: pip install -U dask-strata",
            )
        return manifest


def _read_text(folder: Path) -> str:
    """Return the text of `run.json`; raise NotARunError with the reason if that fails."""
    try:
        return read_inside(folder, MANIFEST, limit=MANIFEST_BYTES).decode()
    except FileNotFoundError:
        reason = "no such folder" if not folder.exists() else f"the folder has no {MANIFEST}"
        raise NotARunError(
            f"{folder} is not a run: {reason}.",
            hint="Give the folder of one run; `dask-strata list RUNS` lists them.",
        ) from None
    except NotADirectoryError:
        raise NotARunError(
            f"{folder} is not a run: it is a file.",
            hint=f"A run is a folder, or a bundle: NAME{BUNDLE_SUFFIX}",
        ) from None
    except RefusedError as error:
        raise NotARunError(
            f"{folder} cannot be read as a run: {error.strerror}.",
            hint="Replace it with the file itself, if you trust its origin.",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise NotARunError(f"{folder / MANIFEST} cannot be read: {error}.") from None


def sync_run(folder: Path) -> None:
    """Flush the manifest of a run and the names of its folders to the disk.

    Raises
    ------
    OSError
        The disk refuses.
    """
    for path in (folder / MANIFEST, folder / SEGMENTS, folder, folder.parent):
        sync_path(path)


def new_run_id() -> str:
    """Return a random id of eight hexadecimal digits.

    >>> len(new_run_id())
    8
    """
    return secrets.token_hex(4)


def run_folder_name(name: str, run_id: str, created_ns: int) -> str:
    """Return `<date>-<name>-<id>`, safe as a file name on any system.

    Parameters
    ----------
    name : str
        Name of the run; characters that are unsafe in file names become hyphens.
    run_id : str
        Id of the run.
    created_ns : int
        When the recording started, in nanoseconds since the epoch.

    Examples
    --------
    >>> run_folder_name("my script.py", "0a1b2c3d", 0)
    '1970-01-01T00-00-00-my-script.py-0a1b2c3d'
    """
    when = datetime.fromtimestamp(created_ns / 1e9, tz=timezone.utc)
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:60] or "run"
    return f"{when:%Y-%m-%dT%H-%M-%S}-{safe}-{run_id}"


def process_identity() -> dict[str, Any]:
    """Return the pid, the host name and the pid namespace of this process.

    Returns
    -------
    dict
        ``pid``, ``host`` and ``pids``. A reader whose own ``pids`` is equal was started on the
        same boot and in the same pid namespace, so that ``pid`` means the same process to it.
        ``pids`` is None where the system has no ``/proc``.

    Examples
    --------
    >>> sorted(process_identity())
    ['host', 'pid', 'pids']
    """
    facts: dict[str, Any] = {"pid": os.getpid(), "host": os.uname().nodename}
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        facts["pids"] = f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except (OSError, UnicodeDecodeError):
        facts["pids"] = None
    return facts


def find_runs(runs: Path) -> Iterator[Path]:
    """Yield the folders and bundles of runs in a folder, oldest first by name.

    Parameters
    ----------
    runs : Path
        Folder with runs in it, or a run itself.
    """
    if runs.name.endswith(".zip") and runs.is_file():
        yield runs
        return
    if kind_of(runs / MANIFEST) is not None:
        yield runs
        return
    try:
        shown = sorted(p for p in runs.iterdir() if not p.name.startswith("."))
    except OSError:
        return
    for path in shown:
        is_run = kind_of(path / MANIFEST) is not None  # of any kind: opening it reports a link
        if is_run or (path.name.endswith(BUNDLE_SUFFIX) and is_file(path)):
            yield path
