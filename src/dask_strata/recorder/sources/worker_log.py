"""A worker's own log: transitions of its state machine, and other entries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dask_strata.recorder.pipeline.engine import now_ns, to_ns
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.pipeline.text import clip, safe_repr, wire_keys
from dask_strata.recorder.sources.log_tap import LogTap
from dask_strata.schema import wire_key
from dask_strata.store.frames import Batch

#: Entries of the worker's log that say no more than the transitions they go with, which
#: have the same key and stimulus.
_REDUNDANT = frozenset({"put-in-memory", "ensure-task-exists"})

#: Entries that begin with their name; in all others it comes behind the key.
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


class WorkerLogSource(Source):
    """Makes batches of ``worker_transitions`` and ``worker_log``.

    Parameters
    ----------
    log : LogTap
        Follows ``worker.state.log``.
    address : str
        Address of the worker.

    Attributes
    ----------
    recorded : int
        Number of transitions that were made into rows.
    """

    def __init__(self, log: LogTap, address: str) -> None:
        self._log, self._address = log, address
        self.recorded = 0

    def rows(self) -> Iterable[Batch]:
        """Return the entries since the last call."""
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
                    "time": [to_ns(t) for t in times],
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
    """Tell entries that only announce the transitions behind them, of the same stimulus."""
    if len(entry) < 3:  # noqa: PLR2004
        return False
    first, second, third = entry[:3]
    if not isinstance(second, str):  # in a cluster of one process it may also be a list
        return bool(first == "free-keys")
    return second in _REDUNDANT or (second == "compute-task" and third == "released")


def _log_row(entry: tuple[Any, ...], worker: str) -> dict[str, Any]:
    """Read one entry of the worker's log; their forms differ, the last two items are the same."""
    *what, stimulus, when = entry
    row: dict[str, Any] = {
        "worker": worker,
        "stimulus_id": stimulus if isinstance(stimulus, str) else safe_repr(stimulus),
    }
    row["time"] = to_ns(when) if isinstance(when, float) else now_ns()
    # A key may be a name, too; but then its event follows, and not a list or an address.
    key_first = len(what) > 1 and isinstance(what[1], str) and "://" not in what[1]
    if what and isinstance(what[0], str) and what[0] in _NAME_FIRST and not key_first:
        row["event"], rest = what[0], what[1:]
    elif len(what) > 1 and isinstance(what[1], str):
        row["key"], row["event"], rest = wire_key(what[0]), what[1], what[2:]
    else:
        row["event"], rest = "other", what
    if rest:
        row["detail"] = clip(
            ", ".join(r if isinstance(r, str) else safe_repr(r, 10_000) for r in rest)
        )
    return row
