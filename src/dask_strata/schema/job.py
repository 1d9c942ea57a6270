"""Tables of the job: recorded processes, job and machine, configuration, packages."""

from __future__ import annotations

from dask_strata.schema.columns import START, STOP, Table, col

JOB = (
    Table(
        "processes",
        "recorded process (client, scheduler, worker, nanny, record, imported)",
        1,
        "job",
        "job",
        (
            col(
                "role",
                "text",
                "client, scheduler, worker, nanny, record (the command), imported (import)",
            ),
            col("address", "text", "address in Dask; id of the client, if it is a client"),
            col("name", "text", "name in Dask", sensitivity="host"),
            col("host", "text", "host name", sensitivity="host"),
            col("pid", "int", "process id on that host"),
            col("nthreads", "int", "executor threads of a worker"),
            col("memory_limit_bytes", "bytes", "memory limit that Dask enforces"),
            START,
            STOP,
            col(
                "exit_reason",
                "text",
                "why the recording of this process ended; null if the process was killed",
            ),
            col("python", "text", "version of Python"),
            col("dask", "text", "version of dask"),
            col("distributed", "text", "version of distributed"),
            col("dask_strata", "text", "version of dask-strata; null for the earliest versions"),
            col("transport", "text", "path of its rows into the run's folder: file, comm, import"),
            col("tap", "text", "source of its transitions: log or plugin"),
        ),
        prov="agent",
        events=False,
    ),
    Table(
        "job",
        "fact about the job: launcher, machine, file systems, limits",
        1,
        "job",
        "job",
        (
            col("name", "text", "name of the fact"),
            col("value", "long", "its value, as text"),
            col("source", "text", "file, variable, command or function that it was read from"),
        ),
        events=False,
    ),
    Table(
        "config",
        "effective setting of a process",
        1,
        "job",
        "config",
        (
            col("name", "text", "dotted name in Dask's configuration"),
            col("value", "text", "its value as JSON; secrets are redacted"),
            col("source", "text", "file or variable that sets it"),
        ),
        events=False,
    ),
    Table(
        "packages",
        "installed package of a process",
        1,
        "job",
        "config",
        (
            col("name", "text", "name of the distribution", sensitivity="nothing"),
            col("version", "text", "its version", sensitivity="nothing"),
        ),
        events=False,
    ),
)
