"""Tables of what the operating system saw of whole processes: Darshan's logs."""

from __future__ import annotations

from dask_strata.schema.columns import START, STOP, WORKER, Table, col

_LOG = col("log", "text", "the log, leads to `darshan_logs`")

SYSTEM = (
    Table(
        "darshan_logs",
        "log of Darshan's: what it saw of one process",
        5,
        "system",
        "process",
        (
            col("log", "text", "id of the log: the beginning of the SHA-256 of its bytes"),
            col("file", "text", "name of the file"),
            col("role", "text", "role of its process in Dask; null if it is none on record"),
            col("worker", "text", "address of the worker that its process is"),
            col("tied_by", "text", "what tied it to its process: pid, host, time, threads"),
            col("host", "text", "host name, where traces tell it"),
            col("pid", "int", "process id, by the name of the file"),
            col("program", "text", "what ran, in short: mpiexec, uname, resource_tracker, …"),
            col("exe", "long", "command line"),
            col("uid", "int", "user id; 0 if Darshan was told to leave it out"),
            col("jobid", "int", "job id; the pid where no batch system gave one"),
            col("nprocs", "int", "processes in the log: more than one under MPI"),
            START,
            STOP,
            col("log_version", "text", "version of the log's format"),
            col("library_version", "text", "version of Darshan's library"),
            col("modules", "text", "modules that have records in it"),
            col("partial", "text", "modules that Darshan had no room for all records of"),
            col("operation_bytes", "int", "size of a traced operation in the log: its layout"),
            col("n_segments", "int", "traced operations; null if there are no traces in it"),
            col("main_thread", "int", "thread that traced first: of imports, then of Dask's loop"),
            col(
                "clock_shift_seconds",
                "seconds",
                "to add to its times, by an estimate; null where there was nothing to estimate by",
            ),
            col("clock_uncertainty_seconds", "seconds", "half of the range it may be in"),
            col(
                "clock_fit",
                "float",
                "share of operations that are within the run of a task then, of the threads that "
                "run tasks; of all where no thread is known",
            ),
        ),
        prov="agent",
        added=True,
    ),
    Table(
        "darshan_counters",
        "counter of a module of Darshan's for a file; those that are 0 are left out",
        5,
        "system",
        "process",
        (
            _LOG,
            col("module", "text", "POSIX, STDIO, MPI-IO, H5F, H5D, LUSTRE, HEATMAP, …"),
            col("uri", "text", "file as Darshan names it"),
            col("rank", "int", "rank that it is of; -1 for all of a shared file"),
            col("counter", "text", "Darshan's name of it; _F_ in it: seconds"),
            col("value", "float", "its value; null where Darshan has -1, for not known"),
        ),
        added=True,
    ),
    Table(
        "darshan_segments",
        "read or write that Darshan traced, its times as in the log: see `io_segments`",
        5,
        "system",
        "process",
        (
            _LOG,
            col("module", "text", "DXT_POSIX or DXT_MPIIO"),
            col("operation", "text", "read or write"),
            col("uri", "text", "file as Darshan names it"),
            col("rank", "int", "rank that it is of"),
            col("thread", "int", "identity of the thread, where the log has it"),
            col("offset", "int", "first byte"),
            col("length_bytes", "bytes", "bytes"),
            START,
            STOP,
        ),
        prov="activity",
        added=True,
    ),
)

#: Computed from these and others on reading: see `derive_io`.
SYSTEM_DERIVED = (
    Table(
        "io_segments",
        "read or write that Darshan traced, and the attempt at a task that did it",
        5,
        "system",
        "process",
        (
            _LOG,
            col("process", "text", "process that did it; null if it is none on record"),
            WORKER,
            col("thread", "int", "identity of the thread, where the log has it"),
            col("module", "text", "DXT_POSIX or DXT_MPIIO, which POSIX sees again"),
            col("operation", "text", "read or write"),
            col("uri", "text", "file as Darshan names it"),
            col("offset", "int", "first byte"),
            col("length_bytes", "bytes", "bytes"),
            START,
            STOP,
            col("seconds", "seconds", "how long it took"),
            col("attempt", "int", "the attempt that did it; null if that is not certain"),
            col("key", "key", "the task"),
            col(
                "attributed_by",
                "text",
                "thread (it ran that task then), alone (one task ran in the process then), "
                "ambiguous (several did), outside (none did: imports, spilling, Dask itself); "
                "null if the process is none on record",
            ),
            col("n_candidates", "int", "tasks that may have done it"),
        ),
        prov="activity",
        derived=True,
        added=True,
    ),
)
