"""What a sender keeps between its starts: its lock, its positions and its messages.

They are in the folder ``stream`` of the run, which no reader of the run looks at; or in the user's
cache folder if that cannot be written.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dask_strata.errors import StrataError
from dask_strata.store.copies.mirror import cache_folder
from dask_strata.store.safe_files import is_name

#: Folder of senders in the folder of a run.
FOLDER = "stream"

#: Bytes of the file with the positions, at most.
_BYTES = 16 << 20


@dataclass
class Status:
    """The state of a sender.

    Attributes
    ----------
    url : str
        Address of the stream without secrets.
    next_seqs : dict of str to int
        Number of the next row to send, by process.
    rows : int
        Rows that were sent by this sender and those before it.
    error : str or None
        Why the last try failed; None after a successful one.
    done : bool
        Whether everything was sent, and the recording has ended.
    """

    url: str
    next_seqs: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    error: str | None = None
    done: bool = False


class SenderFiles:
    """The files of one sender, which exclude a second one for the same run and stream.

    Parameters
    ----------
    run : Path
        The run's folder.
    run_id : str
        Id of the run.
    url : str
        Address of the stream without secrets.
    """

    def __init__(self, run: Path, run_id: str, url: str) -> None:
        self._url = url
        self._name = hashlib.sha256(f"{run_id} {url}".encode()).hexdigest()[:16]
        self._folder = _writable(run)
        self._lock: int | None = None

    def lock(self) -> None:
        """Exclude other senders until this process ends.

        Raises
        ------
        StrataError
            There is another sender, or no folder can be written.
        """
        path = self._folder / f"{self._name}.lock"
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StrataError(f"{path} cannot be written: {error.strerror}.") from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(fd, 100, 0).decode("ascii", "replace")
            os.close(fd)
            raise StrataError(
                f"This run is being sent to {self._url} by another process ({owner or 'unknown'}).",
                hint="It sends all rows; end it before you start another one.",
            ) from None
        except OSError:
            pass  # a file system without locks: readers look at process and seq
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"pid {os.getpid()} on {os.uname().nodename}".encode(), 0)
        self._lock = fd

    def read(self) -> Status:
        """Return the state that was written last."""
        status = Status(self._url)
        with suppress(OSError, ValueError):
            path = self._folder / f"{self._name}.json"
            if path.stat().st_size <= _BYTES:
                _fill(status, json.loads(path.read_bytes()))
        return status

    def write(self, status: Status) -> None:
        """Replace the state; a folder that was removed costs nothing."""
        facts = {
            "url": status.url,
            "next": status.next_seqs,
            "rows": status.rows,
            "error": status.error,
            "done": status.done,
            "time": time.time(),
        }
        new = self._folder / f".{self._name}-{secrets.token_hex(4)}"
        with suppress(OSError):
            new.write_text(json.dumps(facts), encoding="utf-8")
            new.replace(self._folder / f"{self._name}.json")

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _fill(status: Status, facts: Any) -> None:
    if not isinstance(facts, Mapping) or facts.get("url") != status.url:
        return
    positions = facts.get("next")
    if isinstance(positions, Mapping):
        status.next_seqs = {
            p: n for p, n in positions.items() if is_name(p) and type(n) is int and n >= 0
        }
    rows, error = facts.get("rows"), facts.get("error")
    status.rows = rows if type(rows) is int and rows >= 0 else 0
    status.error = error if isinstance(error, str) else None
    status.done = facts.get("done") is True


def _writable(run: Path) -> Path:
    """Return the folder for the files of senders."""
    for folder in (run / FOLDER, cache_folder().parent / "streams"):
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=folder.parent != run, exist_ok=True)
            if not folder.is_symlink() and os.access(folder, os.W_OK):
                return folder
    raise StrataError(
        f"Neither {run / FOLDER} nor {cache_folder().parent} can be written.",
        hint="Choose a cache folder with the setting dask_strata.cache.",
    )
