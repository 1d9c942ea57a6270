"""Tables of processes of the operating system."""

from __future__ import annotations

from dask_strata.schema.columns import TIME, Table, col

PROCESSES = (
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
)
