"""Sending the rows of a run to a broker, while it is recorded or later.

Rows are read from the run's files, so that neither a slow broker nor an absent one is noticed by
the cluster. After an error, the sender continues where the broker is; without that, where its own
file says: a row may then be sent twice, and none is missing.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dask_strata.brokers.address import Address
from dask_strata.brokers.broker import BATCH_BYTES, MAX_BATCH, Sink
from dask_strata.brokers.message import Message, encode, encode_facts
from dask_strata.brokers.registry import check_address, open_sink
from dask_strata.errors import BrokerError, StrataError
from dask_strata.run import Run
from dask_strata.schema import RECORDED
from dask_strata.store.copies.place import shown
from dask_strata.store.copies.upload import noted_destination
from dask_strata.store.manifest import MANIFEST
from dask_strata.stream.batch import Batch
from dask_strata.stream.recorded import RecordedRows, rows_of
from dask_strata.stream.state import SenderFiles, Status

#: Seconds between two looks for new rows, and the share of time that they may take.
_PAUSE_SECONDS = 0.2
_SHARE = 0.25

#: After so many messages, the next look follows at once.
_MANY_MESSAGES = 10_000

#: Seconds between two tries: doubled after each failure.
_FIRST_RETRY, _LAST_RETRY = 0.5, 15.0

#: How long the broker may be away after the recording has ended, in seconds.
GIVE_UP_SECONDS = 60.0

#: Brokers that find the positions of processes with recent rows only.
_LATEST_ONLY = {"kafka"}

#: Brokers in which rows that are sent again do not change the positions found there.
_WITH_EARLIER_ROWS = {"kafka", "file"}

#: Shortest time between two writes of the positions, in seconds.
_SAVE_SECONDS = 1.0


@dataclass(frozen=True)
class Sent:
    """Result of sending a run.

    Attributes
    ----------
    rows : int
        Rows that were sent now.
    state : str
        State of the run.
    url : str
        Address of the stream without secrets.
    damaged : frozenset of str
        Tables whose Parquet is damaged: their rows could not be sent.
    """

    rows: int
    state: str
    url: str
    damaged: frozenset[str] = frozenset()


def send(
    run: Run | str | Path,
    url: str,
    *,
    again: bool = False,
    give_up_seconds: float = GIVE_UP_SECONDS,
    report: Callable[[str], None] = lambda _: None,
) -> Sent:
    """Send all rows of a run to a broker; return when the recording has ended and all are sent.

    Parameters
    ----------
    run : Run, str or Path
        The run, its folder or its URL.
    url : str
        Address of the stream.
    again : bool, optional
        Whether to send rows that are in the stream once more.
    give_up_seconds : float, optional
        How long the broker may be away after the recording has ended, in seconds.
    report : callable, optional
        Is passed a sentence when the broker is away, and when it is back.

    Raises
    ------
    UsageError
        The URL is not the address of a stream.
    NotARunError
        There is no such run.
    StrataError
        A package is missing, another process sends this run there, or the broker was away too long.
    """
    address = check_address(url)
    opened = run if isinstance(run, Run) else Run(run)
    files = SenderFiles(opened.path, opened.manifest.run_id, str(address))
    files.lock()
    try:
        return _Sender(opened, address, files, report, give_up_seconds).send(again=again)
    finally:
        files.close()


class _AwayError(Exception):
    """The broker was away for a moment: continue at its positions."""


class _Sender:
    """Sends one run to one broker.

    Parameters
    ----------
    run : Run
        The run.
    address : Address
        Address of the stream.
    files : SenderFiles
        Keep the positions.
    report : callable
        Is passed sentences for the user.
    give_up_seconds : float
        How long the broker may be away after the recording has ended.
    """

    def __init__(
        self,
        run: Run,
        address: Address,
        files: SenderFiles,
        report: Callable[[str], None],
        give_up_seconds: float,
    ) -> None:
        self._run, self._address, self._files = run, address, files
        self._report, self._give_up_seconds = report, give_up_seconds
        self._run_id = run.manifest.run_id
        self._sink: Sink | None = None
        self._status: Status = files.read()
        self._saved = 0.0
        #: Reads no rows of tables, only whether processes have ended, while the broker is away.
        self._watch: RecordedRows | None = None
        #: Where the run is uploaded to, if its folder is removed then.
        self._destination = noted_destination(run.path)
        #: Number of rows by process and table, and the number of the next row to count.
        self._counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._counted: dict[str, int] = {}
        self._resumed = False
        #: Whether rows that are in the stream are sent again, so that its positions do not count.
        self._repeats = False
        self._damaged: set[str] = set()
        self._n_sent = 0
        self._away_since: float | None = None
        #: When the recording had ended, on the monotonic clock; None while it goes on.
        self._ended: float | None = None
        self._pause = _FIRST_RETRY

    def send(self, *, again: bool) -> Sent:
        """Send all rows."""
        forget = again
        state = None
        try:
            while state is None:
                with suppress(_AwayError):
                    start = self._positions(forget=forget)
                    forget = False
                    state = self._send_from(start)
        except StrataError as error:
            self._status.error = self._status.error or error.message
            raise
        finally:
            self._save(force=True)
            if self._sink is not None:
                self._sink.close()
        return Sent(self._n_sent, state, str(self._address), frozenset(self._damaged))

    def _positions(self, *, forget: bool) -> dict[str, int]:
        """Return the number of the next row by process, as the broker has it."""
        if forget:
            self._try(lambda sink: sink.forget())
            self._status = Status(str(self._address))
            self._resumed = False
            self._repeats = self._address.scheme in _WITH_EARLIER_ROWS
            return {}
        last = None if self._repeats else self._try(lambda sink: sink.last())
        if last is None:
            self._resumed |= bool(self._status.next_seqs)
            return dict(self._status.next_seqs)
        self._resumed |= bool(last) and not self._n_sent
        found = {process: seq + 1 for process, seq in last.items()}
        if last and self._address.scheme in _LATEST_ONLY:
            return {**self._status.next_seqs, **found}
        return found

    def _send_from(self, start: dict[str, int]) -> str:
        """Send the rows from positions on; return the state of the run at its end."""
        rows = rows_of(self._run, RECORDED, start)
        positions = dict(start)
        if not start:
            self._deliver([encode_facts(self._run_id, "run", self._run.manifest.to_json())])
        first = True
        while True:
            began = time.monotonic()
            grows = first or rows.is_recording()
            if not grows and self._ended is None:
                self._ended = began
            found = 0
            for messages in self._messages(rows.look(), positions):
                found += len(messages)
                self._deliver(messages)
                self._save(positions=positions)
            if not grows and not found:
                if not self._moved():
                    break
                rows = rows_of(self._run, RECORDED, positions)
                continue
            if not first and found < _MANY_MESSAGES:
                took = 0 if found else time.monotonic() - began
                time.sleep(max(_PAUSE_SECONDS, took / _SHARE))
                self._run.fetch()
            first = False
        state = rows.state()
        self._damaged |= rows.damaged
        if not (self._status.done and not self._n_sent):
            facts = {"state": state, "rows": self._all_counts()}
            self._deliver([encode_facts(self._run_id, "end", facts)])
        self._status.done = True
        return state

    def _moved(self) -> bool:
        """Return whether the run's folder was removed after an upload; open it there then."""
        if (self._run.path / MANIFEST).exists():
            return False
        destination, self._destination = self._destination, None
        if destination is None:
            return False
        try:
            self._run = Run(destination)
        except StrataError as error:
            self._report(f"{shown(destination)} cannot be read: {error.message}")
            return False
        return True

    def _messages(
        self, batches: Iterator[Batch], positions: dict[str, int]
    ) -> Iterator[list[Message]]:
        """Yield messages of rows in parts that are sent together, and update the positions."""
        held: list[Message] = []
        size = 0
        for batch in batches:
            process = str(batch.process)
            self._count(batch)
            for at in range(0, len(batch.rows), MAX_BATCH):
                part = batch.rows.slice(at, MAX_BATCH)
                first = batch.first_seq + at if batch.is_consecutive else None
                for message in encode(
                    self._run_id, batch.table, process, part, first=first, form=self._address.form
                ):
                    held.append(message)
                    size += len(message.data)
                    if len(held) == MAX_BATCH or size > BATCH_BYTES:
                        positions[process] = int(message.last or 0) + 1
                        yield held
                        held, size = [], 0
            positions[process] = batch.last_seq + 1
        if held:
            yield held

    def _count(self, batch: Batch) -> None:
        """Count rows once, also if they are read again."""
        process = str(batch.process)
        counted = self._counted.get(process, 0)
        if batch.last_seq < counted:
            return
        seqs = batch.seqs.to_numpy() if batch.first_seq < counted else None
        n = len(batch.rows) if seqs is None else int((seqs >= counted).sum())
        self._counts[process][batch.table] += n
        self._counted[process] = batch.last_seq + 1

    def _all_counts(self) -> dict[str, dict[str, int]]:
        """Return the number of rows by process and table, of the whole run."""
        if self._resumed:
            self._counts.clear()
            self._counted.clear()
            for batch in rows_of(self._run, RECORDED, {}).look():
                self._count(batch)
        return {process: dict(counts) for process, counts in self._counts.items()}

    def _deliver(self, messages: list[Message]) -> None:
        """Send messages; raise _AwayError if the broker was away."""
        sink = self._open()
        try:
            sink.send(messages)
        except BrokerError as error:
            self._wait(error)
            raise _AwayError from None
        self._is_back()
        n = sum(message.rows for message in messages)
        self._n_sent += n
        self._status.rows += n

    def _try(self, action: Callable[[Sink], Any]) -> Any:
        """Return the result of an action with the sink; repeat it while the broker is away."""
        while True:
            try:
                return action(self._open())
            except BrokerError as error:
                self._wait(error)

    def _open(self) -> Sink:
        while self._sink is None:
            try:
                self._sink = open_sink(self._address, self._run_id)
            except BrokerError as error:
                self._wait(error)
        return self._sink

    def _is_back(self) -> None:
        if self._away_since is not None:
            away = time.monotonic() - self._away_since
            self._report(f"{self._address} is back after {away:.0f} s: sending continues.")
        self._away_since = None
        self._pause = _FIRST_RETRY
        self._status.error = None

    def _wait(self, error: BrokerError) -> None:
        """Wait before the next try.

        Raises
        ------
        StrataError
            The recording has ended, and the broker was away for too long since.
        """
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
            hint = f" {error.hint}" if error.hint else ""
            self._report(
                f"{error.message}{hint} The run is not affected: its rows are sent when "
                f"{self._address} is back."
            )
        self._status.error = error.message
        self._save(force=True)
        self._note_end()
        if self._ended is not None:
            since = max(self._ended, self._away_since)
            if now - since >= self._give_up_seconds:
                raise StrataError(
                    f"{error.message} The recording has ended, and rows are missing in the stream.",
                    hint=f"Send the rest with: dask-strata stream {shown(self._run.location)} URL",
                )
        time.sleep(min(self._pause, max(0.1, self._give_up_seconds)))
        self._pause = min(2 * self._pause, _LAST_RETRY)

    def _note_end(self) -> None:
        """Note when the recording has ended; without reading rows."""
        if self._ended is not None:
            return
        self._watch = self._watch or rows_of(self._run, (), {})
        for _ in self._watch.look():
            pass  # no table is wanted: this reads the last rows of the processes
        if not self._watch.is_recording():
            self._ended = time.monotonic()
            self._watch = None

    def _save(self, *, positions: dict[str, int] | None = None, force: bool = False) -> None:
        if positions is not None:
            self._status.next_seqs = dict(positions)
        if force or time.monotonic() - self._saved > _SAVE_SECONDS:
            self._saved = time.monotonic()
            self._files.write(self._status)
