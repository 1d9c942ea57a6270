"""Make runs from a stream: one for each run of dask-strata, and one of the coupler's events."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dask_strata.brokers.address import Address, parse_address
from dask_strata.brokers.broker import Payload, Source
from dask_strata.brokers.message import Gap, Message, Unreadable, decode
from dask_strata.brokers.registry import open_source
from dask_strata.errors import ImportedDataError, MessageError
from dask_strata.importers.mofka.importer import ImportedRun
from dask_strata.importers.streams.coupler import CouplerEvents
from dask_strata.importers.streams.run_folder import RunFolder, StreamedRun
from dask_strata.importers.streams.set_aside import SetAside

#: Most runs of a stream that are imported at once.
_RUNS = 1000

#: Bytes of messages whose rows wait in memory, of all runs and processes.
_WAITING_BYTES = 32 << 20

#: Messages between two reports of progress, and between two looks at the bytes that wait.
_STEP = 500

#: Seconds without a message after which `follow` ends, when all runs have ended: if all rows have
#: arrived, and if some have not. The last message may be read before those of other partitions.
_WHOLE_SECONDS, _LATE_SECONDS = 2.0, 10.0

#: Called with the number of messages read so far, and None.
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class StreamImport:
    """Result of an import.

    Attributes
    ----------
    runs : tuple of StreamedRun
        The runs that were made.
    coupler : ImportedRun or None
        The run that was made of events of the Mofka-Dask coupler, if there were any.
    present : tuple of str
        Ids of runs that the folder has already; they were left out.
    messages : int
        Messages in the stream.
    set_aside : int
        Messages that could not be parsed.
    """

    runs: tuple[StreamedRun, ...]
    coupler: ImportedRun | None
    present: tuple[str, ...]
    messages: int
    set_aside: int

    @property
    def is_complete(self) -> bool:
        """Whether nothing is known to be missing."""
        of_coupler = self.coupler
        problems = of_coupler is not None and (of_coupler.set_aside or of_coupler.unreadable)
        return not problems and not any(run.missing for run in self.runs)


def import_stream(  # noqa: PLR0913
    url: str,
    runs: Path,
    *,
    name: str | None = None,
    follow: bool = False,
    idle_seconds: float | None = None,
    strict: bool = False,
    progress: Progress | None = None,
) -> StreamImport:
    """Make a run from each run in a stream. An import that fails or is interrupted makes none.

    Parameters
    ----------
    url : str
        Address of the stream.
    runs : Path
        Folder in which the runs appear when they are complete.
    name : str, optional
        Name of the runs; by default that in the stream.
    follow : bool, optional
        Whether to wait until each run in the stream has ended.
    idle_seconds : float, optional
        With `follow`, end also when no message has arrived for so many seconds.
    strict : bool, optional
        Whether a message that cannot be parsed ends the import.
    progress : callable, optional
        Called with the messages read so far, and None.

    Raises
    ------
    UsageError
        The URL cannot be used.
    BrokerError
        The broker is away or refuses.
    ImportedDataError
        The stream has nothing to import; with `strict` also if a message cannot be parsed.
    StrataError
        A package is not installed, or the runs cannot be written.
    """
    address = parse_address(url)
    source = open_source(address)
    try:
        work = _Import(address, runs, strict=strict, progress=progress)
        limit = _Limit(source, idle_seconds) if follow else None
        try:
            work.read(source, limit)
            return work.finish(name)
        finally:
            if limit is not None:
                limit.stop()
            work.discard()
    except OSError as error:
        raise ImportedDataError(
            f"{error.filename or runs}: {error.strerror or error}.",
            hint="No run was made. Check permissions and free space.",
        ) from error
    finally:
        source.close()


class _Limit:
    """Closes a source when no message has arrived for some time; a thread waits for that."""

    def __init__(self, source: Source, idle_seconds: float | None) -> None:
        self._source, self._idle = source, idle_seconds
        self._seconds = idle_seconds
        self._last = time.monotonic()
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, name="dask-strata-import", daemon=True).start()

    def _watch(self) -> None:
        while not self._stopped.wait(0.1):
            seconds = self._seconds
            if seconds is not None and time.monotonic() - self._last > seconds:
                self._source.close()
                return

    def restart(self, seconds: float | None) -> None:
        """Begin to wait anew: a message has arrived.

        Parameters
        ----------
        seconds : float or None
            The wait that the messages so far allow; None to wait for more without end.
        """
        self._last = time.monotonic()
        given = [each for each in (seconds, self._idle) if each is not None]
        self._seconds = min(given, default=None)

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()


class _Import:
    """One import."""

    def __init__(
        self, address: Address, runs: Path, *, strict: bool, progress: Progress | None
    ) -> None:
        self._address, self._runs, self._strict = address, runs, strict
        self._progress = progress or (lambda *_: None)
        self._made_runs = not runs.exists()
        runs.mkdir(parents=True, exist_ok=True)
        self._folders: dict[str, RunFolder] = {}
        self._coupler = CouplerEvents(runs)
        self._gaps: list[Gap] = []
        self._aside = SetAside(runs / f".import-{secrets.token_hex(4)}.messages")
        self._n = 0

    def discard(self) -> None:
        """Delete everything that has not become a run."""
        for folder in self._folders.values():
            folder.discard()
        self._coupler.discard()
        self._aside.discard()
        if self._made_runs and not any(self._runs.iterdir()):
            self._runs.rmdir()

    def read(self, source: Source, limit: _Limit | None) -> None:
        """Read the stream to its end; with a limit, until that closes the source."""
        for message in self._messages(source, follow=limit is not None):
            self._n += 1
            if isinstance(message, Gap):
                self._gaps.append(message)
            elif isinstance(message, Unreadable):
                if self._strict:
                    raise ImportedDataError(
                        f"{self._address}, {message.place}: {message.reason}.",
                        hint="Without --strict such messages are set aside, counted and reported.",
                    )
                self._aside.add(message)
            elif isinstance(message, Message):
                self._folder(message.run).add(message)
            if self._n % _STEP == 0:
                self._progress(self._n, None)
                folders = self._folders.values()
                if sum(folder.waiting_bytes for folder in folders) > _WAITING_BYTES:
                    for folder in folders:
                        folder.flush()
            if limit is not None:
                limit.restart(self._wait())

    def _messages(
        self, source: Source, *, follow: bool
    ) -> Iterator[Message | Unreadable | Gap | None]:
        """Yield messages; None for an event of the coupler, which is kept."""
        for payload in source.payloads(follow=follow):
            if not isinstance(payload, Payload):
                yield payload
                continue
            try:
                yield decode(payload.data)
            except MessageError as error:
                known = self._coupler.add(payload.data)
                yield None if known else Unreadable(payload.data, payload.place, error.message)

    def _folder(self, run_id: str) -> RunFolder:
        folder = self._folders.get(run_id)
        if folder is None:
            if len(self._folders) >= _RUNS:
                raise ImportedDataError(
                    f"{self._address} has more than {_RUNS:,} runs.", hint="No run was made."
                )
            folder = self._folders[run_id] = RunFolder(self._runs, run_id)
        return folder

    def _wait(self) -> float | None:
        """Return how long to wait for the next message; None without end."""
        folders = self._folders.values()
        if not folders or any(folder.end is None for folder in folders):
            return None
        return _WHOLE_SECONDS if all(f.is_whole for f in folders) else _LATE_SECONDS

    def finish(self, name: str | None) -> StreamImport:
        """Complete all runs."""
        self._progress(self._n, None)
        address = str(self._address)
        if not self._folders and not self._coupler.n:
            aside = f", and {self._aside.n:,} that could not be parsed" if self._aside.n else ""
            raise ImportedDataError(
                f"{address} has no messages of a run{aside}.",
                hint="Is it the right topic? Send a run: dask-strata stream RUN URL",
            )
        coupler = None
        if self._coupler.n:
            coupler = self._coupler.finish(
                name or self._address.topic, address, strict=self._strict
            )
        made = [
            folder.finish(name, address, self._gaps, self._aside)
            for folder in self._folders.values()
            if not folder.is_present
        ]
        present = tuple(f.run_id for f in self._folders.values() if f.is_present)
        return StreamImport(tuple(made), coupler, present, self._n, self._aside.n)
