"""Tables of profiles: functions, coroutines and threads, by choice."""

from __future__ import annotations

from dask_strata.schema.columns import TIME, Table, col

_CLOCK = col("clock", "text", "wall or cpu; null if the file that it was read from does not say")

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
            col("module", "text", "file that it is in", tells="path"),
            col("line", "int", "line of that file that it begins at, its decorators included"),
            col("is_coroutine", "bool", "whether it is an `async def`; null if that is not known"),
            col("waiting", "bool", "whether its own time is waiting: idle loops, locks, streams"),
            col("ncall", "int", "calls that ended since the row before"),
            col("nactualcall", "int", "the same without those from within itself"),
            col("total_seconds", "seconds", "time in it and what it called, since the row before"),
            col("own_seconds", "seconds", "time in it alone and in compiled code that it called"),
            _CLOCK,
            col("owner", "text", "user, library, python, dask (its machinery) or recorder (us)"),
            col("package", "text", "package of a library, of Dask's machinery"),
            col("file", "text", "file that this was read from; null if it was recorded"),
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
            col("total_seconds", "seconds", "its time since the row before, as Yappi saw it"),
            col("scheduled", "int", "times that Yappi saw it scheduled since the row before"),
            _CLOCK,
        ),
        prov="activity",
    ),
)
