"""Tables of executions of tasks, as measured in the threads that run them."""

from __future__ import annotations

from dask_strata.schema.columns import KEY, START, STOP, WORKER, Table, col

#: The execution that a row is about.
_EXECUTION = (
    col("execution", "int", "number of the execution in `executions`, same process"),
    KEY,
    WORKER,
    col("run_id", "int", "Dask's number of the attempt"),
)

EXECUTIONS = (
    Table(
        "executions",
        "execution of a task's function, as measured in the thread that ran it",
        5,
        "system",
        "thread",
        (
            col("execution", "int", "number of this execution among those of its process"),
            KEY,
            WORKER,
            col("run_id", "int", "Dask's number of the attempt"),
            col("thread", "int", "identity of the thread"),
            col("kind", "text", "thread, coroutine, or actor (a call of an actor's method)"),
            START,
            STOP,
            col(
                "outcome",
                "text",
                "finished, erred, or rescheduled (it requested another attempt with Dask's "
                "`Reschedule`, which is no error)",
            ),
            col("exception", "long", "text of the exception", sensitivity="error"),
            col(
                "cpu_seconds",
                "seconds",
                "CPU time of the thread, within Dask's compute time; null for a coroutine",
            ),
            col(
                "process_cpu_seconds",
                "seconds",
                "CPU time of all threads of the process meanwhile; null for a coroutine",
            ),
            col("read_bytes", "bytes", "bytes that the thread read: files, not sockets"),
            col("write_bytes", "bytes", "bytes that the thread wrote, likewise"),
            col("read_calls", "int", "read system calls of the thread"),
            col("write_calls", "int", "write system calls of the thread"),
            col("storage_read_bytes", "bytes", "bytes fetched from storage, not from the cache"),
            col("storage_write_bytes", "bytes", "bytes sent to storage"),
            col("minor_faults", "int", "page faults of the thread without I/O"),
            col("major_faults", "int", "page faults of the thread with I/O"),
            col("voluntary_switches", "int", "times the thread waited"),
            col("involuntary_switches", "int", "times the thread was preempted"),
            col("rss_before_bytes", "bytes", "resident memory of the process before"),
            col("rss_after_bytes", "bytes", "resident memory of the process after"),
            col("rss_peak_bytes", "bytes", "largest resident memory of the process in samples"),
            col(
                "other_read_bytes",
                "bytes",
                "bytes that other threads of the process read meanwhile, without the recorder's: "
                "those of libraries, and Dask's; null if another task ran, Dask spilled, or the "
                "recorder read or wrote at its start or end",
            ),
            col("other_write_bytes", "bytes", "bytes that they wrote, likewise"),
            col(
                "shared",
                "bool",
                "whether another execution overlapped in the process: memory and the process's CPU "
                "time count both; null if the worker has executors that are not recorded",
            ),
            col(
                "elsewhere",
                "text",
                "threads, processes: kinds that it started, whose resource use is not counted",
            ),
            col("n_opened", "int", "files opened, including those of Python and the system"),
        ),
        prov="activity",
    ),
    Table(
        "file_opens",
        "file opened by an execution",
        5,
        "system",
        "thread",
        (
            *_EXECUTION,
            col("uri", "text", "path of the file", sensitivity="path"),
            col("mode", "text", "read, write or update"),
            col("count", "int", "times it was opened"),
            col(
                "file_bytes",
                "bytes",
                "size of the file when its process first recorded that it was opened to read; of "
                "the first 1,000 files of a process",
            ),
        ),
        prov="entity",
    ),
    Table(
        "library_reads",
        "file that a library read in an execution, by the library's own counters",
        5,
        "system",
        "thread",
        (
            *_EXECUTION,
            col("library", "text", "name of the library: uproot"),
            col("uri", "text", "path or address of the file", sensitivity="path"),
            col("requested_bytes", "bytes", "bytes that the library requested"),
            col("requests", "int", "requests that it sent"),
            col("ranges", "int", "ranges of bytes in these requests"),
            col(
                "spans",
                "long",
                "the ranges as JSON, adjacent ones merged; null if unknown",
            ),
            col("open_seconds", "seconds", "time to open it; null if it was already open"),
        ),
        prov="activity",
    ),
    Table(
        "seen_chunks",
        "chunk of events that an execution made",
        5,
        "system",
        "thread",
        (
            *_EXECUTION,
            col(
                "dataset",
                "text",
                "name of the dataset, if its metadata has one",
                sensitivity="path",
            ),
            col("uri", "text", "path or address of the file", sensitivity="path"),
            col("tree", "text", "tree of the file"),
            col("first", "int", "first entry"),
            col("last", "int", "end of the range, exclusive"),
            col("columns", "long", "columns that were read, as JSON; null without an access log"),
            col("build_seconds", "seconds", "time to make the events"),
            col(
                "process_seconds",
                "seconds",
                "time from then until the file was closed or the execution ended",
            ),
        ),
        prov="entity",
    ),
    Table(
        "task_samples",
        "reason for which an execution waited at a line of the user's code, or ran, by samples of "
        "its thread; of a long execution, one row per part of about 2 s, and one or two about each "
        "time of 0.1 s or more in which the sampling thread could not run",
        5,
        "system",
        "thread",
        (
            *_EXECUTION,
            col(
                "waiting",
                "text",
                "lock, gil, sleep, files, network, process (another process, or a pipe), memory (a "
                "page fault), other (also many waits that are too short to be seen); unknown if "
                "the kernel does not report it; null if the thread ran or was ready to run",
            ),
            col("file", "text", "file of the user's innermost line", sensitivity="path"),
            col("line", "int", "number of this line; null if the stack has no code of the user"),
            col("function", "text", "function that contains the line"),
            col(
                "calls",
                "text",
                "module and function that this line called; null if it is the user's own",
            ),
            col("n_samples", "int", "samples; there is one every 80 ms"),
            col(
                "seconds",
                "seconds",
                "sum of the times between each sample and the last look; that of a short execution "
                "can exceed its duration, as many others have no sample",
            ),
            col("cpu_seconds", "seconds", "CPU time of the thread in these times; null if unknown"),
            col(
                "delay_seconds",
                "seconds",
                "time in which the thread was ready to run and had no CPU; null if unknown",
            ),
            col("first", "time", "time of the first sample"),
            col("last", "time", "time of the last sample"),
        ),
        prov="activity",
    ),
    Table(
        "reports",
        "section, counter or column that a task or a library reported in an execution",
        5,
        "system",
        "thread",
        (
            *_EXECUTION,
            col("name", "text", "its name"),
            col(
                "kind",
                "text",
                "section, counter, column, or exception (one that a library caught)",
            ),
            col(
                "value",
                "float",
                "seconds in the section, sum of the counter, reads of the column",
            ),
            col("count", "int", "times it was reported"),
        ),
        prov="activity",
    ),
)
