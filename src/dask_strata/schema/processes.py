"""Tables of processes of the operating system."""

from __future__ import annotations

from dask_strata.schema.columns import START, STOP, TIME, Table, col

PROCESSES = (
    Table(
        "process_threads",
        "thread of a process that runs no tasks: the recorder's own, and the event loop's",
        5,
        "system",
        "thread",
        (
            TIME,
            col("thread", "int", "identity of the thread, as in `executions`"),
            col("purpose", "text", "recorder, or event loop"),
        ),
        prov="agent",
    ),
    Table(
        "process_samples",
        "sample of the operating system's counters of a process, the sum of its threads",
        5,
        "system",
        "process",
        (
            TIME,
            col("cpu_seconds", "seconds", "CPU time since the process began"),
            col("rss_bytes", "bytes", "resident memory"),
            col("read_bytes", "bytes", "bytes read since the process began: files, not sockets"),
            col("write_bytes", "bytes", "bytes written since the process began, likewise"),
            col("read_calls", "int", "read system calls since the process began"),
            col("write_calls", "int", "write system calls since the process began"),
            col("storage_read_bytes", "bytes", "bytes fetched from storage, not from the cache"),
            col("storage_write_bytes", "bytes", "bytes sent to storage"),
            col("minor_faults", "int", "page faults without I/O since the process began"),
            col("major_faults", "int", "page faults with I/O since the process began"),
            col("voluntary_switches", "int", "times that its threads waited"),
            col("involuntary_switches", "int", "times that its threads were preempted"),
            col("threads", "int", "threads of Python"),
        ),
    ),
    Table(
        "loop_blocks",
        "block of the event loop of a scheduler or worker: it ran no callback for 0.1 s or more",
        5,
        "system",
        "process",
        (
            START,
            STOP,
            col("worker", "text", "address of the worker; null for the scheduler"),
            col("seconds", "seconds", "duration; blocks of a process do not overlap"),
            col(
                "frozen_seconds",
                "seconds",
                "part in which the recorder's thread could not run either: one call held the GIL, "
                "many threads competed for it, or the process did not run",
            ),
            col(
                "cpu_seconds",
                "seconds",
                "CPU time of the process meanwhile, and up to 0.1 s before and after",
            ),
        ),
        prov="activity",
    ),
)
