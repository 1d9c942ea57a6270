"""Tables of what processes use, and tasks, as seen from the thread that runs them."""

from __future__ import annotations

from dask_strata.schema.columns import KEY, START, STOP, TIME, WORKER, Table, col

#: The run of a task's function that a row is about.
_RUN = (
    col("execution", "int", "the run's number in `executions`, same process"),
    KEY,
    WORKER,
    col("run_id", "int", "Dask's number of the attempt"),
)

PROCESSES = (
    Table(
        "process_samples",
        "sample of what the operating system counts of a process, all its threads together",
        5,
        "system",
        "process",
        (
            TIME,
            col("cpu_seconds", "seconds", "CPU time since the process began"),
            col("rss_bytes", "bytes", "resident memory"),
            col("read_bytes", "bytes", "bytes read since it began: files, not sockets"),
            col("write_bytes", "bytes", "bytes written since it began"),
            col("read_calls", "int", "read system calls since it began"),
            col("write_calls", "int", "write system calls since it began"),
            col("storage_read_bytes", "bytes", "bytes that storage had to be asked for"),
            col("storage_write_bytes", "bytes", "bytes that storage was handed"),
            col("minor_faults", "int", "page faults without I/O since it began"),
            col("major_faults", "int", "page faults with I/O since it began"),
            col("voluntary_switches", "int", "times that its threads waited"),
            col("involuntary_switches", "int", "times that its threads had to make way"),
            col("threads", "int", "threads of Python's"),
        ),
    ),
)

THREADS = (
    Table(
        "executions",
        "run of a task's function, as measured in the thread that ran it",
        5,
        "system",
        "thread",
        (
            col("execution", "int", "number of this run among those of its process"),
            KEY,
            WORKER,
            col("run_id", "int", "Dask's number of the attempt"),
            col("thread", "int", "identity of the thread"),
            col("kind", "text", "thread, coroutine, or actor: a call of an actor's method"),
            START,
            STOP,
            col("outcome", "text", "finished or erred"),
            col("exception", "long", "text of the exception", tells="error"),
            col("cpu_seconds", "seconds", "CPU time of the thread; null for a coroutine"),
            col("read_bytes", "bytes", "bytes that the thread read: files, not sockets"),
            col("write_bytes", "bytes", "bytes that the thread wrote"),
            col("read_calls", "int", "read system calls of the thread"),
            col("write_calls", "int", "write system calls of the thread"),
            col("storage_read_bytes", "bytes", "bytes that storage had to be asked for"),
            col("storage_write_bytes", "bytes", "bytes that storage was handed"),
            col("minor_faults", "int", "page faults of the thread without I/O"),
            col("major_faults", "int", "page faults of the thread with I/O"),
            col("voluntary_switches", "int", "times the thread waited"),
            col("involuntary_switches", "int", "times the thread had to make way"),
            col("rss_before_bytes", "bytes", "resident memory of the process before"),
            col("rss_after_bytes", "bytes", "resident memory of the process after"),
            col("rss_peak_bytes", "bytes", "most resident memory of the process, as far as seen"),
            col(
                "shared",
                "bool",
                "whether others ran in the process meanwhile: memory is theirs too",
            ),
            col(
                "elsewhere", "text", "threads, processes: what it started, whose use is not in this"
            ),
            col("n_opened", "int", "files opened, those of Python and the system too"),
        ),
        prov="activity",
    ),
    Table(
        "file_opens",
        "file that a run of a task's function was seen to open",
        5,
        "system",
        "thread",
        (
            *_RUN,
            col("uri", "text", "path of the file", tells="path"),
            col("mode", "text", "read, write or update"),
            col("count", "int", "how often"),
        ),
        prov="entity",
    ),
    Table(
        "library_reads",
        "file that a library read in a run of a task's function, by the library's own counters",
        5,
        "system",
        "thread",
        (
            *_RUN,
            col("library", "text", "name of the library: uproot"),
            col("uri", "text", "path or address of the file", tells="path"),
            col("requested_bytes", "bytes", "bytes that were requested of it"),
            col("requests", "int", "requests that they were asked for with"),
            col("ranges", "int", "ranges of bytes in these requests"),
            col("spans", "long", "the ranges, those that touch as one, as JSON; null if unknown"),
            col("open_seconds", "seconds", "time until it was open; null if it was before"),
        ),
        prov="activity",
    ),
    Table(
        "seen_chunks",
        "chunk of events that a run of a task's function was seen to make",
        5,
        "system",
        "thread",
        (
            *_RUN,
            col("dataset", "text", "name of the dataset, where its metadata has one", tells="path"),
            col("uri", "text", "path or address of the file", tells="path"),
            col("tree", "text", "tree of the file"),
            col("first", "int", "first entry"),
            col("last", "int", "the one behind the last"),
            col("columns", "long", "columns that were read, as JSON; null if nobody kept a log"),
            col("build_seconds", "seconds", "time until the events were there"),
            col(
                "process_seconds", "seconds", "from then until the file was closed or the run ended"
            ),
        ),
        prov="entity",
    ),
    Table(
        "reports",
        "section, counter or column that a task, or a library, reported from the inside",
        5,
        "system",
        "thread",
        (
            *_RUN,
            col("name", "text", "its name"),
            col(
                "kind",
                "text",
                "section, counter, column, or exception: one that a library kept quiet",
            ),
            col(
                "value", "float", "seconds in the section, sum of the counter, reads of the column"
            ),
            col("count", "int", "how often it was reported"),
        ),
        prov="activity",
    ),
)
