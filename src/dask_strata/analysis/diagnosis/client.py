"""What the client did: graphs that it sent, results that it fetched, lines at which it was."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dask_strata.analysis.critical_path.walk import Segment
    from dask_strata.run import Run


class ClientFacts:
    """Facts of the clients of a run.

    Parameters
    ----------
    run : Run
        The run.
    segments : tuple of Segment
        Its critical path.
    """

    def __init__(self, run: Run, segments: tuple[Segment, ...]) -> None:
        self.run, self.segments = run, segments

    @cached_property
    def submissions(self) -> list[dict[str, Any]]:
        """Graphs that clients sent, in order: began and time in ns, line, size, collection."""
        return self.run.rows(
            "select epoch_ns(c.began) as began, epoch_ns(c.time) as time, c.client, c.file, "
            "c.line, c.function, c.code, c.cell, c.collection, c.n_keys, c.sent_bytes, "
            "c.first_key, g.n_tasks from client_submissions c left join client_graphs g on "
            "g.client = c.client and g.time = c.time and g.first_key = c.first_key "
            "where c.time is not null order by c.time"
        )

    @cached_property
    def is_interactive(self) -> bool:
        """Whether a person submitted the graphs, from a notebook."""
        return any(row["cell"] is not None for row in self.submissions)

    @cached_property
    def n_sent_tasks(self) -> int:
        """Number of tasks that the scheduler received in graphs."""
        row = self.run.rows("select coalesce(sum(n_tasks), 0)::double as n from submissions")[0]
        return int(row["n"])

    def calls(self, kind: str) -> list[dict[str, Any]]:
        """Return the client's calls of one kind within the makespan: gather or scatter."""
        if not self.segments:
            return []
        first, last = self.segments[0].start, self.segments[-1].stop
        return [
            row
            for row in self._all_calls
            if row["kind"] == kind and row["stop"] > first and row["start"] < last
        ]

    @cached_property
    def _all_calls(self) -> list[dict[str, Any]]:
        return self.run.rows(
            "select kind, epoch_ns(start) as start, epoch_ns(stop) as stop, n_keys, nbytes, "
            "file, line, code from client_calls where stop > start order by start"
        )

    @cached_property
    def _samples(self) -> list[dict[str, Any]]:
        return self.run.rows(
            "select epoch_ns(start) as start, epoch_ns(stop) as stop, file, line, function, "
            "calls from client_samples where line is not null and stop > start order by start"
        )

    def place(self, claims: Iterable[int]) -> dict[str, Any] | None:
        """Return the line at which the client was longest in some segments."""
        sums: dict[tuple[Any, Any], float] = {}
        for index in claims:
            segment = self.segments[index]
            if segment.cause not in {"client", "nothing submitted", "gather"}:
                continue
            for row in self._samples:
                held = min(row["stop"], segment.stop) - max(row["start"], segment.start)
                if held > 0:
                    place = (row["file"], row["line"])
                    sums[place] = sums.get(place, 0.0) + held
        if not sums:
            return None
        file, line = max(sums, key=lambda place: sums[place])
        return {"file": file, "line": line}
