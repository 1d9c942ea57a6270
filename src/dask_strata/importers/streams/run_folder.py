"""Writing a run from its messages, in a hidden folder that gets its name when it is complete."""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dask_strata.brokers.message import Gap, Message
from dask_strata.errors import ImportedDataError, StrataError
from dask_strata.importers.streams.seen import Seen
from dask_strata.importers.streams.segment_file import SegmentFile
from dask_strata.importers.streams.set_aside import MESSAGES, SetAside
from dask_strata.importers.streams.wire_rows import wire_batch
from dask_strata.store.manifest import (
    ASIDE,
    SEGMENTS,
    SUFFIX,
    Manifest,
    find_runs,
    new_run_id,
    run_folder_name,
)
from dask_strata.store.safe_files import create_run_folder, share_as
from dask_strata.store.segments.frames import Encoder

#: Most processes of a run.
_PROCESSES = 100_000

#: File in the run's folder with facts of the import.
FACTS = "import.json"


@dataclass(frozen=True)
class StreamedRun:
    """A run that was made from a stream.

    Attributes
    ----------
    path : Path
        The run's folder.
    rows : int
        Rows of the run.
    processes : int
        Processes that recorded them.
    duplicates : int
        Rows that were in the stream more than once, and were dropped.
    set_aside : int
        Messages that could not be parsed, and are kept in the folder `aside`; none if the run is
        whole without them.
    missing : tuple of str
        Sentences about rows and messages that are missing; empty if the run is complete.
    """

    path: Path
    rows: int
    processes: int
    duplicates: int
    set_aside: int
    missing: tuple[str, ...]


class RunFolder:
    """One run of a stream.

    Parameters
    ----------
    runs : Path
        Folder of runs.
    run_id : str
        Id of the run: a plain name.

    Attributes
    ----------
    manifest : Manifest or None
        Contents of `run.json`, once its message has arrived.
    end : dict or None
        Facts of the last message, once it has arrived.
    is_present : bool
        Whether the folder of runs has this run already.

    Raises
    ------
    StrataError
        The folder cannot be written.
    """

    def __init__(self, runs: Path, run_id: str) -> None:
        self.run_id = run_id
        self.manifest: Manifest | None = None
        self.end: dict[str, Any] | None = None
        self.is_present = any(path.name.endswith(f"-{run_id}") for path in find_runs(runs))
        self._runs = runs
        self._files: dict[str, SegmentFile] = {}
        self._cut: Counter[str] = Counter()
        self._folder = runs / f".import-{secrets.token_hex(4)}"
        try:
            create_run_folder(self._folder, "owner")
            (self._folder / SEGMENTS).mkdir()
        except OSError as error:
            raise StrataError(
                f"{runs} cannot be written: {error.strerror or error}.",
                hint="Give another folder with -o RUNS.",
            ) from error

    def add(self, message: Message) -> None:
        """Add a message.

        Raises
        ------
        ImportedDataError
            The messages name too many processes.
        OSError
            The disk refuses.
        """
        if message.kind == "run":
            self.manifest = self.manifest or Manifest.from_json(message.content)
        elif message.kind == "end":
            self.end = message.content
        elif not self.is_present:
            process = str(message.process)
            file = self._files.get(process)
            if file is None:
                if len(self._files) >= _PROCESSES:
                    raise ImportedDataError(
                        f"Run {self.run_id} has more than {_PROCESSES:,} processes.",
                        hint="No run was made.",
                    )
                file = self._files[process] = SegmentFile(self._folder, self.run_id, process)
            file.add(message)
            for name in message.cut:
                self._cut[f"{message.table}.{name}"] += 1

    @property
    def waiting_bytes(self) -> int:
        """Bytes of messages whose rows wait in memory."""
        return sum(file.waiting_bytes for file in self._files.values())

    def flush(self) -> None:
        """Write all rows that wait. Raises OSError."""
        for file in self._files.values():
            file.flush()

    @property
    def is_whole(self) -> bool:
        """Whether the last message has arrived, and all rows that it counts."""
        if self.is_present:
            return self.end is not None
        return self.end is not None and self.manifest is not None and not self._missing_by_process()

    def _missing_by_process(self) -> dict[str, int]:
        """Return the number of missing rows by process, as the last message counts them."""
        counts = {} if self.end is None else self.end["rows"]
        missing = {}
        for process, tables in counts.items():
            file = self._files.get(process)
            found = Counter() if file is None else file.rows
            if (n := sum(max(0, n - found[table]) for table, n in tables.items())) > 0:
                missing[process] = n
        return missing

    def _losses(self, gaps: Sequence[Gap], aside: SetAside) -> Iterator[dict[str, Any]]:
        """Yield rows of ``losses`` for all that is missing.

        A reader finds rows that are missing between two others by their numbers: these are not
        among the losses here.
        """
        if self.manifest is None:
            yield {"what": "run.json", "reason": "its message is not in the stream"}
        if self.end is None:
            yield {"what": "end", "reason": "the last message of the run is not in the stream"}
        missing = self._missing_by_process()
        for process in sorted({*missing, *self._files}):
            seen = self._files[process].seen if process in self._files else Seen()
            count = seen.first if self.end is None else missing.get(process, 0) - seen.gaps
            if count > 0:
                reason = "not in the stream, before or after the other rows of the process"
                yield {"what": "rows", "count": count, "reason": reason, "where": process}
        for name, n in sorted(self._cut.items()):
            yield {"what": name, "count": n, "reason": "values were too large for a message"}
        if self.is_whole:
            return
        for gap in gaps:
            reason = f"the broker no longer had them: {gap.place}"
            yield {"what": "messages", "count": gap.messages, "reason": reason}
        if aside.n:
            reason = f"could not be parsed; the first one: {aside.first_reason}"
            yield {"what": "messages", "count": aside.n, "reason": reason}

    def _gaps(self) -> Iterator[str]:
        """Yield a sentence for each process with rows that are missing between others."""
        for process, file in sorted(self._files.items()):
            n = file.unusable + (0 if self.is_whole else file.seen.gaps)
            if n:
                yield f"{n:,} rows of {process}: missing between others"

    def finish(
        self, name: str | None, origin: str, gaps: Sequence[Gap], aside: SetAside
    ) -> StreamedRun:
        """Complete the run, and give its folder its name.

        Parameters
        ----------
        name : str or None
            Another name of the run.
        origin : str
            Address of the stream, without passwords.
        gaps : sequence of Gap
            Messages that the broker no longer had, of any run.
        aside : SetAside
            Messages that could not be parsed, of any run.

        Raises
        ------
        OSError
            The folder cannot be written or renamed.
        """
        files = list(self._files.values())
        for file in files:
            file.finish()
        losses = list(self._losses(gaps, aside))
        set_aside = 0 if self.is_whole else aside.n
        self._write_losses(losses, aside.rows() if set_aside else [])
        duplicates = sum(file.duplicates for file in files)
        rows = sum(file.seen.n - file.unusable for file in files)
        facts = {"from": origin, "rows": rows, "duplicates": duplicates, "set_aside": set_aside}
        text = json.dumps({**facts, "imported_ns": time.time_ns()}, indent=2)
        (self._folder / FACTS).write_text(text + "\n", encoding="utf-8")
        if set_aside:
            (self._folder / ASIDE).mkdir()
            shutil.copyfile(aside.path, self._folder / ASIDE / MESSAGES)
        manifest = self.manifest or self._guessed()
        if name is not None:
            manifest = replace(manifest, name=name, named=True)
        manifest.write(self._folder)
        share_as(self._folder, *self._folder.rglob("*"))
        folder = run_folder_name(manifest.name, manifest.run_id, manifest.created_ns)
        path = self._folder.rename(self._runs / folder)
        missing = (*map(_sentence, losses), *self._gaps())
        return StreamedRun(path, rows, len(files), duplicates, set_aside, missing)

    def _guessed(self) -> Manifest:
        """Return a manifest for a run whose own was not in the stream."""
        times = [file.first_ns for file in self._files.values() if file.first_ns is not None]
        return Manifest(
            run_id=self.run_id,
            name="stream",
            created_ns=max(0, min(times, default=0)),
            version=version("dask-strata"),
            named=False,
        )

    def _write_losses(self, losses: list[dict[str, Any]], aside: list[dict[str, Any]]) -> None:
        """Write the segment of the importing process, if anything is missing."""
        if not losses:
            return
        process = f"import-{new_run_id()}"
        now = time.time_ns()
        importing = {
            "role": "imported",
            "start": now,
            "stop": now,
            "exit_reason": "complete",
            "transport": "import",
        }
        batches = [wire_batch("processes", [importing]), wire_batch("losses", losses)]
        batches += [wire_batch("set_aside", aside)] if aside else []
        encoder = Encoder(process, {"run": self.run_id, "role": "imported"})
        data = encoder.header() + b"".join(encoder.frame([batch]) for batch in batches)
        (self._folder / SEGMENTS / f"{process}{SUFFIX}").write_bytes(data)

    def discard(self) -> None:
        """Delete everything written."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _sentence(loss: dict[str, Any]) -> str:
    """Return the text for the user of a row of ``losses``."""
    number = "" if loss.get("count") is None else f"{loss['count']:,} "
    where = f" of {loss['where']}" if loss.get("where") else ""
    return f"{number}{loss['what']}{where}: {loss['reason']}"
