"""Tables of logs: records of Python's logging, warnings, and what workers print."""

from __future__ import annotations

from dask_strata.schema.columns import KEY, TIME, Table, col

LOGS = (
    Table(
        "log_records",
        "record of Python's logging, or warning",
        4,
        "workflow system",
        "worker",
        (
            TIME,
            col("level", "text", "name of its level: INFO, WARNING, …; WARNING for a warning"),
            col("level_number", "int", "number of its level: 20 for INFO, 30 for WARNING, …"),
            col("logger", "text", "name of the logger; `py.warnings` for a warning"),
            col("message", "long", "its message, without secrets, clipped", sensitivity="error"),
            col(
                "exception",
                "long",
                "traceback and stack that it came with, as logging prints them",
                sensitivity="error",
            ),
            col("kind", "text", "log or warning"),
            col("worker", "text", "address of the worker; null elsewhere"),
            col("key", "key", "the task that its thread ran, if any"),
            col("run_id", "int", "Dask's number of that attempt"),
            col("thread", "int", "identity of its thread, as in `executions`"),
            col("thread_name", "text", "name of its thread"),
        ),
        prov="activity",
    ),
    Table(
        "output_lines",
        "line that a worker's process wrote to its standard output or error, read by its nanny",
        5,
        "system",
        "process",
        (
            col("time", "time", "when the nanny read it"),
            col("worker", "text", "address of the worker; null if it was not known yet"),
            col("pid", "int", "id of the worker's process"),
            col(
                "stream",
                "text",
                "stdout or stderr; output if both are one file or terminal, whose order is kept",
            ),
            col(
                "line",
                "long",
                "the line, without secrets, clipped; bytes that are no UTF-8 as `\\x..`",
                sensitivity="error",
            ),
            col("terminated", "bool", "whether it ended with a newline"),
        ),
        prov="activity",
    ),
)

#: `logs` is computed from both: see `dask_strata.run.derived`.
DERIVED_LOGS = (
    Table(
        "logs",
        "entry of a log: a record of logging, a warning, or a line that a worker wrote; a line "
        "that is the printed form of a record is that record",
        4,
        "workflow system",
        "worker",
        (
            col("number", "int", "place of this entry among all of the run, by time"),
            TIME,
            col("process", "text", "process that wrote it, see `processes`; null if unrecorded"),
            col("role", "text", "role of this process: scheduler, worker, nanny, client"),
            col("worker", "text", "address of the worker; null elsewhere"),
            col("name", "text", "name of the worker or nanny"),
            col("host", "text", "host name"),
            col("level", "text", "level: INFO, WARNING, …; null for lines of output"),
            col("level_number", "int", "number of the level"),
            col("logger", "text", "name of the logger"),
            col("stream", "text", "log, warning, stdout, stderr, or output for both in one file"),
            col("message", "long", "message or line", sensitivity="error"),
            col("exception", "long", "traceback that came with it", sensitivity="error"),
            KEY,
            col("attempt", "int", "attempt that logged it, see `attempts`; null if not certain"),
            col("thread", "int", "identity of its thread; null for lines of output"),
        ),
        prov="activity",
        derived=True,
    ),
)
