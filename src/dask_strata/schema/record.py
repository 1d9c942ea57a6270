"""Tables of the recording itself: clocks, Dask's counters, overhead, losses."""

from __future__ import annotations

from dask_strata.schema.columns import TIME, Table, col

RECORD = (
    Table(
        "clock_offsets",
        "measurement of a process's clock against the scheduler's",
        4,
        "record",
        "record",
        (
            TIME,
            col("offset_seconds", "seconds", "correction to add to this process's clock"),
            col("uncertainty_seconds", "seconds", "half the round trip of the measurement"),
        ),
    ),
    Table(
        "counters",
        "Dask's own counter, read between two of its transitions",
        3,
        "record",
        "record",
        (
            TIME,
            col("name", "text", "name of the counter"),
            col("value", "int", "Dask's count since the recording of this process began"),
            col("recorded", "int", "rows recorded for it until then, or left out"),
            col("final", "bool", "whether this is the last reading, at the end"),
        ),
    ),
    Table(
        "overheads",
        "reading of the recorder's own cost in a process, cumulative",
        3,
        "record",
        "record",
        (
            TIME,
            col("cpu_seconds", "seconds", "CPU time of the recorder's threads"),
            col(
                "process_cpu_seconds",
                "seconds",
                "CPU time of the whole process since the recording began",
            ),
            col("written_bytes", "bytes", "bytes written to the run's folder"),
            col(
                "read_bytes",
                "bytes",
                "bytes that the recorder read from files: on its own threads, and to measure tasks",
            ),
            col("rows", "int", "rows written to the run's folder"),
        ),
    ),
    Table(
        "recorded_processes",
        "process whose segment the scheduler's recorder found in the run's folder",
        3,
        "record",
        "record",
        (
            TIME,
            col("segment_of", "text", "id of the process"),
        ),
    ),
    Table(
        "left_out_rows",
        "number of rows that a process did not record, as they are about tasks of other clients",
        3,
        "record",
        "record",
        (
            TIME,
            col("what", "text", "table that the rows would be in"),
            col("count", "int", "rows that were left out since the last such row"),
        ),
    ),
    Table(
        "losses",
        "known loss: rows or facts that are missing, were dropped or were not understood",
        3,
        "record",
        "record",
        (
            TIME,
            col("what", "text", "kind of loss, or table concerned"),
            col("count", "int", "rows concerned; null if unknown"),
            col("reason", "long", "why"),
            col("where", "text", "file or process concerned"),
        ),
    ),
)
