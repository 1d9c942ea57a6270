"""The log records and warnings of one recorded process."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

from dask_strata.config import Settings
from dask_strata.recorder.logs import hook
from dask_strata.recorder.logs.budget import REASON, Budget
from dask_strata.recorder.logs.hook import Entry
from dask_strata.recorder.logs.texts import TextFilter
from dask_strata.recorder.pipeline.engine import Engine
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import wire_keys
from dask_strata.store.segments.frames import Batch


class LogSource(Source):
    """Record what this process logs, from creation until `detach`.

    Of several recorders of a run in one process, the first one has the rows.

    Parameters
    ----------
    engine : Engine
        The recorder of the server or client.
    address : str or None
        Address of the worker; None elsewhere.
    """

    def __init__(self, engine: Engine, address: str | None) -> None:
        self.run_id, self.role, self.address = engine.run_id, engine.role, address
        self.level = engine.settings.log_level
        self.budget = Budget()
        self._engine = engine
        self._code = engine.settings.code
        self._entries: deque[Entry] = deque()
        self._failures: Counter[str] = Counter()
        hook.join(self)

    def take(self, entry: Entry) -> None:
        """Keep an entry for the next flush, within the bounds."""
        if self.budget.take([entry.size]):
            self._entries.append(entry)

    def fail(self, reason: str) -> None:
        """Count an entry that could not be read."""
        self._failures[reason] += 1

    def rows(self) -> Iterable[Batch]:
        """Return rows of the entries since the last call."""
        entries = [self._entries.popleft() for _ in range(len(self._entries))]
        if not entries:
            return
        columns: dict[str, Any] = dict(
            zip(Entry._fields, map(list, zip(*entries, strict=True)), strict=True)
        )
        columns["message"] = [self._clean(entry.message) for entry in entries]
        columns["exception"] = [
            None if entry.exception is None else self._clean(entry.exception) for entry in entries
        ]
        columns["key"] = _keys([entry.key for entry in entries])
        yield Batch("log_records", len(entries), columns)

    def _clean(self, text: str) -> str:
        return TextFilter(code=self._code).text(text)

    def sample(self) -> None:
        """Record what was lost since the last sample."""
        for row in self._losses():
            self._engine.add("losses", **row)

    def finish(self) -> None:
        """Record what was lost since the last sample."""
        self.sample()

    def remove(self) -> None:
        """Stop recording; the last recording of the process restores Python's functions."""
        hook.leave(self)

    detach = remove

    def _losses(self) -> list[dict[str, object]]:
        """Return rows of ``losses`` since the last call."""
        found = Counter({REASON: self.budget.take_lost()})
        for reason in list(self._failures):
            found[reason] += self._failures.pop(reason)
        return [
            {
                "time": time.time_ns(),
                "what": "log_records",
                "count": count,
                "reason": reason,
                "where": self._engine.process,
            }
            for reason, count in found.items()
            if count
        ]


def record_logs(engine: Engine, address: str | None = None) -> list[Source]:
    """Return the source of a process's log, attached; none if logs are left out.

    Parameters
    ----------
    engine : Engine
        The recorder, not started yet.
    address : str, optional
        Address of the worker.
    """
    return [LogSource(engine, address)] if records_logs(engine.settings) else []


def records_logs(settings: Settings) -> bool:
    """Return whether logs are recorded."""
    return "logs" not in settings.leave_out


def _keys(keys: list[object]) -> list[str | None]:
    known = iter(wire_keys([key for key in keys if key is not None]))
    return [None if key is None else next(known) for key in keys]
