"""Transfers of results between workers; both ends of a transfer log it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dask_strata.recorder.pipeline.engine import Engine, now_ns, to_ns
from dask_strata.recorder.pipeline.source import Source
from dask_strata.recorder.sources.dask_logs import LogFollower
from dask_strata.schema import wire_key
from dask_strata.store.frames import Batch


class TransferSource(Source):
    """Make batches of ``transfer_ends`` and ``transfer_end_keys``, and rows of ``clock_offsets``.

    Parameters
    ----------
    worker : distributed.Worker
        The worker.
    incoming, outgoing : LogFollower
        Followers of the worker's two logs of transfers.
    engine : Engine
        Gets the rows of ``clock_offsets``.
    """

    def __init__(
        self, worker: Any, incoming: LogFollower, outgoing: LogFollower, engine: Engine
    ) -> None:
        self._worker, self._address = worker, worker.address
        self._incoming, self._outgoing = incoming, outgoing
        self._engine = engine
        self._n_transfers = 0
        self._delay: float | None = None

    def rows(self) -> Iterable[Batch]:
        """Return rows of the transfers that ended since the last call."""
        delay = self._worker.scheduler_delay
        if delay != self._delay:
            self._delay = delay
            self._engine.add(
                "clock_offsets",
                time=now_ns(),
                offset_seconds=delay,
                uncertainty_seconds=self._worker.latency / 2,
            )
        ends, rows = [], []
        for end, log in (("incoming", self._incoming), ("outgoing", self._outgoing)):
            for entry in log.take():
                self._n_transfers += 1
                rows += [
                    {"number": self._n_transfers, "key": wire_key(key), "nbytes": nbytes}
                    for key, nbytes in entry["keys"].items()
                ]
                row = _transfer_row(end, entry, self._address, delay)
                ends.append({"number": self._n_transfers, **row})
        if ends:
            yield Batch.of_rows("transfer_ends", ends)
            if rows:
                yield Batch.of_rows("transfer_end_keys", rows)


def _transfer_row(end: str, entry: dict[str, Any], worker: str, delay: float) -> dict[str, Any]:
    """Return the row for an entry of Dask's transfer logs, with times on the worker's own clock.

    Dask shifts start and stop to the scheduler's clock. An outgoing entry also has the unshifted
    `middle`, which gives the exact shift. For an incoming entry, assume the present delay.
    """
    start, stop = entry["start"], entry["stop"]
    if end == "outgoing":
        delay = (start + stop) / 2 - entry["middle"]
    return {
        "end": end,
        "start": to_ns(start - delay),
        "stop": to_ns(stop - delay),
        "worker": worker,
        "peer": entry["who"],
        "total_bytes": entry["total"],
        "compressed_bytes": entry.get("compressed"),
        "n_keys": len(entry["keys"]),
    }
