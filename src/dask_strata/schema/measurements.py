"""Tables of Dask's own measurements: its statistical profile, and its fine performance metrics."""

from __future__ import annotations

from dask_strata.schema.columns import START, STOP, TIME, WORKER, Table, col

MEASUREMENTS = (
    Table(
        "stacks",
        "stack that Dask's statistical profile found in a cycle, with the number of its samples",
        5,
        "system",
        "thread",
        (
            START,
            STOP,
            WORKER,
            col("kind", "text", "task: threads that execute tasks; event loop: that of the server"),
            col("prefix", "text", "prefix of the tasks; null for an event loop"),
            col("frame", "int", "innermost frame, leads to `stack_frames` of the same process"),
            col("n_samples", "int", "samples in the cycle that found this stack"),
            col(
                "estimated_seconds",
                "seconds",
                "samples × Dask's interval between two: too little where the event loop, which "
                "samples, was late",
            ),
        ),
        prov="activity",
    ),
    Table(
        "stack_frames",
        "frame of the stacks: a function as called by the frames above it; once in a process",
        5,
        "system",
        "thread",
        (
            TIME,
            col("frame", "int", "number of the frame in its process"),
            col("parent", "int", "the frame that called it; null for the outermost"),
            col("function", "text", "name of the function"),
            col("module", "text", "file that contains it", sensitivity="path"),
            col("line", "int", "first line of the function; null if it has no source"),
        ),
    ),
    Table(
        "fine_metrics",
        "Dask's fine performance metric on a worker: cumulative, a row whenever it has changed",
        4,
        "workflow system",
        "worker",
        (
            TIME,
            WORKER,
            col(
                "context",
                "text",
                "execute, gather-dep, get-data, memory-monitor, p2p as in Dask; spill: the sums "
                "of Dask's spill buffer, which are in the others, too",
            ),
            col("span_id", "text", "Dask's id of the span; null without one"),
            col("prefix", "text", "prefix of the tasks, for execute"),
            col("activity", "text", "thread-cpu, network, disk-write, …, as in Dask"),
            col("unit", "text", "seconds, bytes, count, or the user's own"),
            col("value", "float", "sum since the recording of this worker began", "see `unit`"),
            col("final", "bool", "whether this is the last value, at the end"),
        ),
    ),
)
