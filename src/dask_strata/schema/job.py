"""Tables of the job: recorded processes, job and machine, configuration, packages."""

from __future__ import annotations

from dask_strata.schema.columns import START, STOP, TIME, Table, col

#: Columns of a batch job, in `job_states` and in the derived `jobs`.
BATCH_JOB = (
    col("name", "text", "name of the job", sensitivity="text"),
    col(
        "state",
        "text",
        "PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, TIMEOUT, OUT_OF_MEMORY, NODE_FAIL, "
        "PREEMPTED, …: Slurm's names, also for other batch systems",
    ),
    col("reason", "long", "why it is in this state, in the batch system's words"),
    col("exit_code", "int", "exit code of an ended job"),
    col("signal", "int", "number of the signal that ended it"),
    col("queue", "text", "partition or queue"),
    col("account", "text", "account or project that is charged", sensitivity="text"),
    col("nodes", "text", "its nodes, as the batch system lists them", sensitivity="host"),
    col("n_nodes", "int", "number of nodes, requested ones before it starts"),
    col("submitted", "time", "when it was submitted"),
    col("start", "time", "when it started; null if it has not"),
    col("stop", "time", "when it ended"),
    col("used_seconds", "seconds", "wall time so far"),
    col("time_limit_seconds", "seconds", "limit on its wall time; null without one"),
    col("memory_used_bytes", "bytes", "most memory that it used, if the batch system counts it"),
    col("memory_limit_bytes", "bytes", "memory that was requested for it, on all its nodes"),
    col("cpus", "int", "CPUs"),
    col(
        "worker_name",
        "text",
        "name of the worker for which dask-jobqueue submitted it",
        sensitivity="host",
    ),
)

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
    Table(
        "job_states",
        "state of a batch job, as the batch system reported it",
        1,
        "job",
        "job",
        (
            TIME,
            col("system", "text", "batch system: slurm, pbs, lsf"),
            col("job", "text", "id of the job"),
            *BATCH_JOB,
            col("ended", "bool", "whether the state is final"),
            col("source", "text", "command that printed it"),
        ),
    ),
)
