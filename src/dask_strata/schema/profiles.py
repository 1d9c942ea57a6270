"""Tables of profiles recorded on request, and of Dask's own: its profile and fine metrics."""

from __future__ import annotations

from dask_strata.schema.columns import START, STOP, TIME, WORKER, Table, col

_CLOCK = col("clock", "text", "wall or cpu; null if the imported file does not contain it")

PROFILES = (
    Table(
        "functions",
        "function or coroutine of a profile, by thread and interval: sums are over the run",
        5,
        "system",
        "coroutine",
        (
            TIME,
            col("thread", "int", "identity of the thread, as in `executions`"),
            col("thread_name", "text", "name of the thread"),
            col("name", "text", "qualified name of the function"),
            col("module", "text", "file that contains it", sensitivity="path"),
            col("line", "int", "its first line in that file, decorators included"),
            col("is_coroutine", "bool", "whether it is an `async def`; null if unknown"),
            col("waiting", "bool", "whether its own time is waiting: idle loops, locks, queues"),
            col("ncall", "int", "calls that ended since the row before"),
            col("nactualcall", "int", "the same without recursive calls"),
            col("total_seconds", "seconds", "time in it and its callees, since the row before"),
            col("own_seconds", "seconds", "time in it alone and in compiled code that it called"),
            _CLOCK,
            col("owner", "text", "user, library, python, dask or recorder (dask-strata itself)"),
            col("package", "text", "package, if the owner is a library or dask"),
            col("file", "text", "file that this was imported from; null if it was recorded"),
        ),
        prov="activity",
    ),
    Table(
        "profile_threads",
        "thread of a profiled process, by interval: sums are over the run",
        5,
        "system",
        "coroutine",
        (
            TIME,
            col("thread", "int", "identity of the thread, as in `executions`"),
            col("thread_name", "text", "name of the thread"),
            col("total_seconds", "seconds", "its time since the row before, as Yappi measured it"),
            col("scheduled", "int", "times that Yappi saw it scheduled since the row before"),
            _CLOCK,
        ),
        prov="activity",
    ),
)

#: Dask's statistical profile, and its fine performance metrics.
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
            col(
                "span_id",
                "text",
                "Dask's id of the span; null without one, and for the sums of spans beyond the "
                "first 2,500 metrics of a worker",
            ),
            col("prefix", "text", "prefix of the tasks, for execute"),
            col("activity", "text", "thread-cpu, network, disk-write, …, as in Dask"),
            col("unit", "text", "seconds, bytes, count, or the user's own"),
            col("value", "float", "sum since the recording of this worker began", "see `unit`"),
            col("final", "bool", "whether this is the last value, at the end"),
        ),
    ),
)
