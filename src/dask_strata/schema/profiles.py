"""Tables of profiles: functions, coroutines and threads; recorded on request."""

from __future__ import annotations

from dask_strata.schema.columns import TIME, Table, col

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
