"""The run's name and identity: one small JSON file, written once when recording begins."""

from __future__ import annotations

import json
import math
import re
import secrets
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from dask_strata.errors import NewerRunError, NotARunError
from dask_strata.schema import FORMAT_VERSION
from dask_strata.store.limits import MANIFEST_BYTES, TIME_NS
from dask_strata.store.safe_files import RefusedError, read_inside
from dask_strata.store.sinks import sync_path

MANIFEST = "run.json"
SEGMENTS = "segments"
PARQUET = "parquet"
SUFFIX = ".seg"

#: Folder of rows that were added to the run later, each lot in a folder of its own.
ADDITIONS = "additions"

#: Folder of profiles for other tools: pstat and callgrind files.
PROFILES = "profiles"
PROFILE_FORMS = ("pstat", "callgrind")

#: Folder of Darshan's logs, unless they are to go elsewhere.
DARSHAN = "darshan"

#: Folder of rows that an import could not understand, as they were.
ASIDE = "aside"


@dataclass(frozen=True)
class Manifest:
    """What `run.json` says. Times are integer nanoseconds since the epoch."""

    run: str
    name: str
    created_ns: int
    version: str
    format: int = FORMAT_VERSION
    session: str | None = None
    flush_interval_seconds: float = 0.1
    scheduler: dict[str, Any] = field(default_factory=dict)
    imported_from: str | None = None

    def write(self, folder: Path) -> None:
        """Write it, all or nothing. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SEGMENTS).mkdir(exist_ok=True)
        temporary = folder / f".{MANIFEST}.{secrets.token_hex(4)}"
        temporary.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        temporary.replace(folder / MANIFEST)

    def validate(self) -> None:
        """Raise TypeError or ValueError if something is not what its type says."""
        texts = (self.run, self.name, self.version, self.session or "", self.imported_from or "")
        if not all(isinstance(text, str) for text in texts) or not isinstance(self.scheduler, dict):
            raise TypeError("a fact of a run is of another type")
        if type(self.created_ns) is not int or not 0 <= self.created_ns < TIME_NS:
            raise ValueError("it began at no time")
        interval = float(self.flush_interval_seconds)
        if not math.isfinite(interval) or interval < 0:
            raise ValueError("its interval is none")

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read it.

        Raises
        ------
        NotARunError
            There is none, or it cannot be understood.
        NewerRunError
            It was written by a version that knows a later format.
        """
        path = folder / MANIFEST
        try:
            text = read_inside(folder, MANIFEST, limit=MANIFEST_BYTES).decode()
        except FileNotFoundError:
            what = "no such folder" if not folder.exists() else f"no {MANIFEST} in it"
            raise NotARunError(
                f"{folder} is not a run: {what}.",
                hint="Give the folder of one run; `dask-strata list RUNS` shows which there are.",
            ) from None
        except NotADirectoryError:
            raise NotARunError(
                f"{folder} is not a run: it is a file.", hint="An archive must be unpacked first."
            ) from None
        except RefusedError as error:
            raise NotARunError(
                f"{folder} is not a run that can be read: {error.strerror}.",
                hint="Put the file itself in its place, if you know where it came from.",
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise NotARunError(f"{path} cannot be read: {error}.") from None
        try:
            facts = json.loads(text)
            known = {k: v for k, v in facts.items() if k in cls.__dataclass_fields__}
            manifest = cls(**known)
            version = int(manifest.format)
            if version <= FORMAT_VERSION:
                manifest.validate()
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            raise NotARunError(
                f"{path} is damaged: it is not the JSON that dask-strata writes.",
                hint="The segments beside it may be whole: restore run.json from a copy.",
            ) from None
        if version > FORMAT_VERSION:
            raise NewerRunError(
                f"{folder} was written by dask-strata {manifest.version} in format {version}; "
                f"this version reads up to {FORMAT_VERSION}.",
                hint="Upgrade: pip install -U dask-strata",
            )
        return manifest


def sync_run(folder: Path) -> None:
    """Return when the disk has the manifest and the folders of a run; raises OSError."""
    for path in (folder / MANIFEST, folder / SEGMENTS, folder, folder.parent):
        sync_path(path)


def new_run_id() -> str:
    """Return a short random id."""
    return secrets.token_hex(4)


def run_folder_name(name: str, run: str, created_ns: int) -> str:
    """Return `<date>-<name>-<id>`, safe as a file name on any system.

    >>> run_folder_name("my script.py", "0a1b2c3d", 0)
    '1970-01-01T00-00-00-my-script.py-0a1b2c3d'
    """
    when = datetime.fromtimestamp(created_ns / 1e9, tz=timezone.utc)
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:60] or "run"
    return f"{when:%Y-%m-%dT%H-%M-%S}-{safe}-{run}"
