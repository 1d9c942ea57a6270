"""Align the clocks of all processes of a run, by measured offsets to the scheduler's clock."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

#: An offset is applied only if it exceeds this many times its uncertainty.
_SIGNIFICANT = 1.0


def clock_offsets(processes: pa.Table, measurements: pa.Table) -> dict[str, int]:
    """Return the nanoseconds to add to the times of each process on another host.

    Processes on the scheduler's host share its clock and have no offset. On another host, the
    measurement with the least uncertainty counts. Imported measurements have no uncertainty: the
    median of the host counts, with half of the interquartile range as its uncertainty.

    Parameters
    ----------
    processes : pyarrow.Table
        The table ``processes``.
    measurements : pyarrow.Table
        The table ``clock_offsets``, in seconds.

    Returns
    -------
    dict of str to int
        Nanoseconds by process; only offsets larger than their uncertainty.
    """
    rows = processes.select(["process", "role", "host"]).to_pylist()
    declared = [p for p in rows if p["role"]]
    scheduler_hosts = {p["host"] for p in declared if p["role"] == "scheduler" and p["host"]}
    hosts = {
        p["process"]: p["host"] or p["process"]
        for p in declared
        if p["host"] not in scheduler_hosts
    }
    measured: dict[str, list[tuple[float, float | None]]] = {}
    columns = ["process", "offset_seconds", "uncertainty_seconds"]
    for row in measurements.select(columns).to_pylist():
        host = hosts.get(row["process"])
        if host is not None and row["offset_seconds"] is not None:
            measured.setdefault(host, []).append(
                (row["offset_seconds"], row["uncertainty_seconds"])
            )
    best = {host: _best(offsets) for host, offsets in measured.items()}
    return {
        process: int(best[host][0] * 1e9)
        for process, host in hosts.items()
        if host in best and abs(best[host][0]) > _SIGNIFICANT * best[host][1]
    }


def _best(measured: list[tuple[float, float | None]]) -> tuple[float, float]:
    """Return the best offset of a host and its uncertainty, in seconds."""
    certain = [(u, offset) for offset, u in measured if u is not None]
    if certain:
        uncertainty, offset = min(certain)
        return offset, uncertainty
    offsets = sorted(offset for offset, _ in measured)
    low, middle, high = (offsets[len(offsets) * i // 4] for i in (1, 2, 3))
    return middle, (high - low) / 2


def align(table: pa.Table, offsets: dict[str, int], *, imported: bool) -> pa.Table:
    """Return a table with the times of each process shifted by its offset.

    In imported runs only `time` is shifted: workers shifted the other times by their own estimate
    before they reported them.

    Parameters
    ----------
    table : pyarrow.Table
        A recorded table, with the column ``process``.
    offsets : dict of str to int
        Nanoseconds to add, by process.
    imported : bool
        Whether the run was imported; then only the column ``time`` is shifted.
    """
    shifted = [
        i
        for i, column in enumerate(table.schema)
        if pa.types.is_timestamp(column.type) and (column.name == "time" or not imported)
    ]
    if not shifted or not offsets:
        return table
    processes = table["process"].cast(pa.string()).combine_chunks()
    if not set(pc.unique(processes).to_pylist()) & offsets.keys():
        return table
    names = pa.array(offsets, pa.string())
    shifts = pa.array(offsets.values(), pa.int64())
    shift = pc.fill_null(shifts.take(pc.index_in(processes, names)), 0)
    for i in shifted:
        column = table.schema.field(i)
        times = pc.add(table[i].cast(pa.int64()), shift).cast(column.type)
        table = table.set_column(i, column, times)
    return table
