"""A worker's own log: transitions of its state machine, and other entries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dask_strata.recorder.pipeline.engine import now_ns, times_ns, to_ns
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import clip, safe_repr, wire_keys
from dask_strata.recorder.sources.dask_logs import LogFollower
from dask_strata.schema import wire_key
from dask_strata.store.segments.frames import Batch

#: Entries that repeat a transition with the same key and stimulus.
_REDUNDANT = frozenset({"put-in-memory", "ensure-task-exists"})

#: Names of entries that begin with their name; all others begin with the key.
_NAME_FIRST = frozenset(
    {
        "free-keys",
        "gather-dependencies",
        "request-dep",
        "receive-dep",
        "receive-dep-failed",
        "busy-gather",
        "network-failure",
        "remove-worker",
    }
)

_TRANSITION_LENGTH = 7

#: Event of ``worker_log`` for a result that the worker held when its recording began.
HELD = "held-at-start"

#: Bound on these events of a worker; more results are a row of ``losses``.
MAX_HELD = 100_000

#: Least number of items of an entry with a key, a name and something more.
_KEYED_LENGTH = 3


class WorkerLogSource(Source):
    """Make batches of ``worker_transitions`` and ``worker_log``.

    Parameters
    ----------
    log : LogFollower
        Follows ``worker.state.log``.
    address : str
        Address of the worker.
    held : iterable, optional
        Keys of the results that the worker holds when the recording begins.

    Attributes
    ----------
    recorded : int
        Number of rows of ``worker_transitions`` so far.
    """

    def __init__(self, log: LogFollower, address: str, held: Iterable[Any] = ()) -> None:
        self._log, self._address = log, address
        self._held, self._began = list(held), now_ns()
        self.recorded = 0

    def rows(self) -> Iterable[Batch]:
        """Return rows of the entries since the last call."""
        held, self._held = self._held, []
        if held:
            yield Batch(
                "worker_log",
                len(held),
                {
                    "time": self._began,
                    "worker": self._address,
                    "event": HELD,
                    "key": wire_keys(held),
                },
            )
        transitions, others = [], []
        for entry in self._log.take():
            if len(entry) == _TRANSITION_LENGTH and isinstance(entry[4], dict):
                transitions.append(entry)
            elif not _is_redundant(entry):
                others.append(entry)
        if transitions:
            self.recorded += len(transitions)
            keys, starts, wanted, finals, _, stimuli, times = zip(*transitions, strict=True)
            yield Batch(
                "worker_transitions",
                len(transitions),
                {
                    "time": times_ns(times),
                    "worker": self._address,
                    "key": wire_keys(keys),
                    "start_state": list(starts),
                    "wanted_state": list(wanted),
                    "finish_state": list(finals),
                    "stimulus_id": list(stimuli),
                },
            )
        if others:
            rows = [_log_row(entry, self._address) for entry in others]
            yield Batch.of_rows("worker_log", rows)


def _is_redundant(entry: tuple[Any, ...]) -> bool:
    """Return whether an entry only announces later transitions of the same stimulus."""
    if len(entry) < _KEYED_LENGTH:
        return False
    first, second, third = entry[:3]
    if not isinstance(second, str):  # keys to free; a list in a cluster of one process
        return bool(first == "free-keys")
    return second in _REDUNDANT or (second == "compute-task" and third == "released")


def _log_row(entry: tuple[Any, ...], worker: str) -> dict[str, Any]:
    """Return the row for an entry: in all forms the last two items are stimulus and time."""
    *items, stimulus, when = entry
    row: dict[str, Any] = {
        "worker": worker,
        "stimulus_id": stimulus if isinstance(stimulus, str) else safe_repr(stimulus),
    }
    row["time"] = to_ns(when) if isinstance(when, float) else now_ns()
    # A key may equal one of the names; then the event's name follows, not a list or an address.
    key_first = len(items) > 1 and isinstance(items[1], str) and "://" not in items[1]
    if items and isinstance(items[0], str) and items[0] in _NAME_FIRST and not key_first:
        row["event"], rest = items[0], items[1:]
    elif len(items) > 1 and isinstance(items[1], str):
        row["key"], row["event"], rest = wire_key(items[0]), items[1], items[2:]
    else:
        row["event"], rest = "other", items
    if rest:
        row["detail"] = clip(
            ", ".join(r if isinstance(r, str) else safe_repr(r, 10_000) for r in rest)
        )
    return row
