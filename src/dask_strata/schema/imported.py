"""Tables that only imports fill: Darshan's logs, imported files, rows set aside."""

from __future__ import annotations

from dask_strata.schema.columns import START, STOP, Table, col

LOG = col("log", "text", "the log, leads to `darshan_logs`")

DARSHAN = (
    Table(
        "darshan_logs",
        "log of Darshan: the I/O of one process",
        5,
        "system",
        "process",
        (
            col("log", "text", "id of the log: the beginning of the SHA-256 of its bytes"),
            col("file", "text", "name of the file"),
            col("role", "text", "role of its process in Dask; null if that was not recorded"),
            col("worker", "text", "address of the worker in its process"),
            col("tied_by", "text", "evidence for its process: pid, host, time, threads"),
            col(
                "certainty",
                "float",
                "1 if pid or threads are evidence for its process; by time alone: 1 less the share "
                "of its operations outside the worker's tasks, divided by the share outside those "
                "of the next best worker, or by chance; null without a process",
            ),
            col("host", "text", "host name, if traces contain it"),
            col("pid", "int", "process id, from the name of the file"),
            col("program", "text", "its program, in short: mpiexec, uname, resource_tracker, …"),
            col("exe", "long", "command line"),
            col("uid", "int", "user id; 0 if Darshan was configured to leave it out"),
            col("jobid", "int", "job id; the pid outside of a batch system"),
            col("nprocs", "int", "processes in the log: more than one under MPI"),
            START,
            STOP,
            col("log_version", "text", "version of the log's format"),
            col("library_version", "text", "version of Darshan's library"),
            col("modules", "text", "modules that have records in it"),
            col("partial", "text", "modules whose records did not all fit into Darshan's memory"),
            col("operation_bytes", "int", "size of a traced operation in the log: its layout"),
            col("n_segments", "int", "traced operations; null without traces"),
            col(
                "main_thread",
                "int",
                "thread of the first traced operation: imports, then Dask's event loop",
            ),
            col(
                "clock_shift_seconds",
                "seconds",
                "estimated correction to add to its times; null without an estimate",
            ),
            col("clock_uncertainty_seconds", "seconds", "half the range of possible corrections"),
            col(
                "clock_fit",
                "float",
                "share of operations, on threads that run tasks, which lie within an execution "
                "after the correction; of all operations if no thread is known",
            ),
        ),
        prov="agent",
        added=True,
    ),
    Table(
        "darshan_counters",
        "counter of a Darshan module for a file, if it is not 0",
        5,
        "system",
        "process",
        (
            LOG,
            col("module", "text", "POSIX, STDIO, MPI-IO, H5F, H5D, LUSTRE, HEATMAP, …"),
            col("uri", "text", "file as Darshan names it"),
            col("rank", "int", "its rank; -1 for all ranks of a shared file"),
            col("counter", "text", "Darshan's name of it; _F_ in the name: seconds"),
            col("value", "float", "its value; null if Darshan has -1, for unknown"),
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
            LOG,
            col("module", "text", "DXT_POSIX or DXT_MPIIO"),
            col("operation", "text", "read or write"),
            col("uri", "text", "file as Darshan names it"),
            col("rank", "int", "its rank"),
            col("thread", "int", "identity of the thread, if the log contains it"),
            col("offset", "int", "first byte"),
            col("length_bytes", "bytes", "bytes"),
            START,
            STOP,
        ),
        prov="activity",
        added=True,
    ),
)

IMPORTS = (
    Table(
        "imports",
        "file that rows were imported from",
        3,
        "record",
        "record",
        (
            col("file", "text", "name of the file"),
            col("folder", "text", "folder of the file"),
            col("rows", "int", "rows in it, not counting its header"),
            col("kept", "int", "rows that are in the tables; one may make several rows there"),
            col("resent", "int", "rows that are in `transfer_resends`"),
            col("salvaged", "int", "rows that were reassembled from damaged events"),
            col("set_aside", "int", "rows that are in `set_aside`"),
            col("size_bytes", "bytes", "size of the file"),
            col("columns", "long", "its columns in their order, as JSON"),
            col("kind", "text", "darshan or profile; null for a file of the Mofka coupler"),
            col("sha256", "text", "SHA-256 of its bytes; null for a file of the Mofka coupler"),
        ),
        imported=True,
    ),
    Table(
        "set_aside",
        "row of an imported file that was not understood; its bytes are in the run's folder",
        3,
        "record",
        "record",
        (
            col(
                "file",
                "text",
                "name of the file; the row's bytes are in `aside/` under this name",
            ),
            col("line", "int", "its first line in that file, from 1"),
            col("lines", "int", "number of its lines"),
            col("reason", "text", "why it was not understood"),
        ),
        imported=True,
    ),
)
