"""The views of a run that grows, from one look at its record to the next."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from dask_strata.run.clock import clock_offsets
from dask_strata.run.derived import STORED
from dask_strata.run.growing.views import GrowingViews
from dask_strata.store.on_demand import Tables
from dask_strata.store.parquet import Part

#: Tables whose rows all have a key. One without it, in a damaged record, would belong to no key
#: that is computed again.
_ALWAYS_WITH_KEY = ("executions", "reports", "scheduler_transitions", "worker_transitions")


class Growth:
    """The views of a run that has a finalised part and newer rows.

    Parameters
    ----------
    part : Part
        The finalised part.
    tables : Tables
        The recorded tables.
    only_own : bool
        Whether the run has the tasks of one client only.
    """

    def __init__(self, part: Part, tables: Tables, *, only_own: bool) -> None:
        processes = tables.of_parquet("processes")
        self._processes = set(processes["process"].to_pylist())
        self._has_workers = "worker" in processes["role"].to_pylist()
        self._has_darshan = len(tables.of_parquet("darshan_logs")) > 0
        self._scheduler_hosts = _scheduler_hosts(processes)
        self._offsets = clock_offsets(processes, tables.of_parquet("clock_offsets"))
        self._seen: dict[str, int] = {}
        self.views = GrowingViews(part, {}, only_own=only_own)

    def offsets_ns(self, present: Mapping[str, int]) -> dict[str, int]:
        """Return the offsets of the finalised part, and the present ones of newer processes.

        The best measurement of a clock may improve while the run grows. Times in the finalised
        part are computed already, and stay aligned as they are until it is made anew.

        Parameters
        ----------
        present : mapping of str to int
            Offsets by all measurements so far.
        """
        newer = {p: ns for p, ns in present.items() if p not in self._processes}
        return {**self._offsets, **newer}

    def look(self, tables: Tables, offsets_ns: Mapping[str, int], processes: pa.Table) -> bool:
        """Add the rows since the last look.

        Parameters
        ----------
        tables : Tables
            The recorded tables now.
        offsets_ns : mapping of str to int
            Nanoseconds to add to the times of each process.
        processes : pyarrow.Table
            The table ``processes`` as derived tables use it.

        Returns
        -------
        bool
            False if derived tables have to be computed from all rows.
        """
        new = {name: rows for name, rows in tables.newer(self._seen).items() if len(rows)}
        if (
            # Tables of an earlier definition would have to be computed from all rows first.
            self.views.stored() != STORED
            or _has_early_outcomes(new)
            or any(name in new and new[name]["key"].null_count for name in _ALWAYS_WITH_KEY)
            or (not self._has_workers and _has_workers(new))
            or _scheduler_hosts(processes) != self._scheduler_hosts
            # These concern all attempts: which of them ran meanwhile, the order of their numbers.
            or self._has_darshan
            or "darshan_logs" in new
            or processes["role"].to_pylist().count("scheduler") > 1
        ):
            return False
        if new:
            self.views.look(new, offsets_ns, processes)
        for name, rows in new.items():
            self._seen[name] = self._seen.get(name, 0) + len(rows)
        return True


def _has_early_outcomes(new: Mapping[str, pa.Table]) -> bool:
    """Return whether outcomes have to be mended on reading, see `prepare.mark_rescheduled`."""
    rows = new.get("executions")
    if rows is None:
        return False
    erred = rows.filter(pc.equal(rows["outcome"].cast(pa.string()), "erred"))
    found = pc.starts_with(erred["exception"].cast(pa.string()), "Reschedule(")
    return bool(pc.any(found).as_py())


def _scheduler_hosts(processes: pa.Table) -> set[str | None]:
    """Return the hosts whose processes share the clock of a scheduler."""
    rows = processes.select(["role", "host"]).to_pylist()
    return {row["host"] for row in rows if row["role"] == "scheduler"}


def _has_workers(new: Mapping[str, pa.Table]) -> bool:
    """Return whether the first worker is among new processes: all attempts depend on it."""
    rows = new.get("processes")
    return rows is not None and "worker" in rows["role"].to_pylist()
