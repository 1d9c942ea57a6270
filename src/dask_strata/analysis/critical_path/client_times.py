"""When clients built and sent graphs, and scattered and gathered data.

Times are integer nanoseconds on the scheduler's clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dask_strata.analysis.critical_path.data import NONE, merged
from dask_strata.analysis.series.columns import Array, Ints, Names, columns

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Intervals in which clients ran code of Dask, by samples every 80 ms, and did not wait.
_BUILDING = """
    select client, epoch_ns(start) as start, epoch_ns(stop) as stop from client_samples
    where (calls like 'dask/%' or calls like 'distributed/%')
      and coalesce(waiting, 'gil') in ('gil', 'memory', 'files') and stop > start
    order by start
"""

#: Longest pause between two such intervals of the same graph.
_PAUSE_NS = 200_000_000

#: Times at which clients sent graphs, and at which they began to make the message, -1 if unknown.
_SENT = """
    select client, coalesce(epoch_ns(began), -1) as began, epoch_ns(time) as sent
    from client_submissions where time is not null order by time
"""

#: Times at which the scheduler received graphs.
_RECEIVED = """
    select client, epoch_ns(time) as received from submissions where time is not null order by time
"""

_CALLS = """
    select client, kind, epoch_ns(start) as start, epoch_ns(stop) as stop from client_calls
    where kind is not null and stop > start
"""

#: Columns of these queries.
_COLUMNS = ("client", "kind", "start", "stop", "began", "sent", "received")

#: Longest time from a scatter to the first graph, and from the last result until the client fetches
#: it, if the one waited for the other.
_AT_ONCE_NS = 250_000_000


@dataclass(frozen=True)
class BusyTimes:
    """Times of one client, or of all.

    Attributes
    ----------
    sent : array of int
        Times at which it sent graphs, in order.
    graph, scatter, gather : tuple of array of int
        Starts and stops of the disjoint intervals in which it built and sent graphs, scattered data
        or gathered data, in order. The interval of a graph ends when the scheduler has its tasks.
    """

    sent: Ints
    graph: tuple[Ints, Ints]
    scatter: tuple[Ints, Ints]
    gather: tuple[Ints, Ints]

    def gathered_after(self, last: int) -> int:
        """Return when the client had the last results; `last` if it did not fetch them at once.

        Parameters
        ----------
        last : int
            Time of the last result.
        """
        starts, stops = self.gather
        at_once = (starts <= last + _AT_ONCE_NS) & (stops > last)
        return int(stops[at_once][-1]) if at_once.any() else last

    def scattered_before(self, first: int) -> int:
        """Return when the client began to scatter the data of the first graph.

        Parameters
        ----------
        first : int
            Time of the first graph, which is returned if no scatter ended just before it.
        """
        for start, stop in zip(*(times[::-1].tolist() for times in self.scatter), strict=True):
            if start < first <= stop + _AT_ONCE_NS:
                first = start
        return first


class ClientTimes:
    """Times at which the clients of a run were busy.

    Several clients may share a scheduler. Rows without a client count for each of them.

    Parameters
    ----------
    run : Run
        The run.
    """

    def __init__(self, run: Run) -> None:
        self._run, self._clients, self._kinds = run, Names(), Names()
        self._found: dict[str | None, BusyTimes] = {}

    def of(self, client: str | None) -> BusyTimes:
        """Return the times of a client.

        Parameters
        ----------
        client : str or None
            Id of the client; None for all clients.
        """
        if client not in self._found:
            numbers = None if client is None else [-1, self._clients.number(client)]
            sent, graphs, calls = (
                _chosen(rows, "client", numbers) for rows in (self._sent, self._graphs, self._calls)
            )
            self._found[client] = BusyTimes(
                sent["sent"],
                graph=merged(graphs["start"], graphs["stop"]),
                scatter=self._busy(calls, "scatter"),
                gather=self._busy(calls, "gather"),
            )
        return self._found[client]

    def _busy(self, calls: dict[str, Array], kind: str) -> tuple[Ints, Ints]:
        rows = _chosen(calls, "kind", [self._kinds.number(kind)])
        return merged(rows["start"], rows["stop"])

    def _read(self, query: str) -> dict[str, Array]:
        names = {"client": self._clients, "kind": self._kinds}
        rows = columns(self._run, query, names=names)
        return rows or dict.fromkeys(_COLUMNS, NONE[0])

    @cached_property
    def _sent(self) -> dict[str, Array]:
        return self._read(_SENT)

    @cached_property
    def _calls(self) -> dict[str, Array]:
        return self._read(_CALLS)

    @cached_property
    def _graphs(self) -> dict[str, Array]:
        """Client, start and stop of the intervals in which each graph was built and sent."""
        parts = [(NONE[0], *NONE), *self._graphs_by_client()]
        found = (np.concatenate([part[i] for part in parts]) for i in range(3))
        return dict(zip(("client", "start", "stop"), found, strict=True))

    def _graphs_by_client(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Yield the graphs of each client: it built what it sent while it ran code of Dask."""
        received, building = self._read(_RECEIVED), self._read(_BUILDING)
        for client in np.unique(self._sent["client"]).tolist():
            times = _chosen(received, "client", [client])["received"]
            start, stop = _sent_graphs(_chosen(self._sent, "client", [client]), times)
            code = _chosen(building, "client", [-1, client])
            first, last = merged(code["start"], code["stop"] + _PAUSE_NS)
            if len(first):
                index = np.searchsorted(first, start, side="right") - 1
                built = (index >= 0) & (last[index] >= start)
                start[built] = first[index[built]]
            yield np.full(len(start), client), start, stop


def _chosen(rows: dict[str, Array], name: str, numbers: list[int] | None) -> dict[str, Array]:
    """Return the rows with some values in a column; all rows if these are None."""
    if numbers is None:
        return rows
    chosen = np.isin(rows[name], numbers)
    return {each: column[chosen] for each, column in rows.items()}


def _sent_graphs(sent: dict[str, Array], received: Ints) -> tuple[Ints, Ints]:
    """Return when a client began to send graphs, and when the scheduler had their tasks."""
    times, used, pairs = received.tolist(), 0, []
    for began, at in zip(sent["began"].tolist(), sent["sent"].tolist(), strict=True):
        if began < 0:
            continue
        # The scheduler receives the graphs of a client in their order.
        index = bisect_left(times, began, lo=used)
        if index < len(times):
            used = index + 1
            pairs.append((began, max(times[index], at)))
        else:
            pairs.append((began, at))
    found = np.array(pairs, np.int64).reshape(-1, 2)
    return found[:, 0].copy(), found[:, 1]
