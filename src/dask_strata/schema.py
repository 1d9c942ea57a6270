"""Every table and column of a run, once.

The recorder writes by these definitions, the reader builds Arrow tables from them, the
documentation and ``dask-strata map`` are made from them. Nothing heavy is imported here,
because this module is loaded into every worker.

A column has a *kind*:

=========  ==========================================  ============================
kind       on reading (Arrow)                          how the recorder hands it over
=========  ==========================================  ============================
time       timestamp[ns, UTC]                          int, nanoseconds since the epoch
seconds    float64                                     float
bytes      int64                                       int
int        int64                                       int
float      float64                                     float
bool       bool                                        bool
text       dictionary of string (few distinct values)  str
long       string                                      str
key        two columns, ``name`` and ``name_type``     wire text, see :func:`wire_key`
intervals  list of structs, see :data:`INTERVAL`       list of 4-tuples
=========  ==========================================  ============================

Unknown is null in each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

FORMAT_VERSION = 1

Kind = Literal[
    "time", "seconds", "bytes", "int", "float", "bool", "text", "long", "key", "intervals"
]

#: Fields of one interval of a task's startstops: what was done, from when to when (on the
#: scheduler's clock as the worker estimated it, see ``clock_offsets``), and the address
#: that a transfer came from.
INTERVAL = ("action", "start", "stop", "source")


@dataclass(frozen=True)
class Column:
    """A column: its name, kind, meaning, and unit where the name does not say it."""

    name: str
    kind: Kind
    meaning: str
    unit: str = ""


@dataclass(frozen=True)
class Table:
    """A table: what a row is, the cell of the metadata map it belongs to, its columns.

    ``derived`` tables are not recorded: they are computed from the others on reading.
    ``prov`` is the role of a row in the W3C PROV model.
    """

    name: str
    row: str
    step: int
    layer: str
    level: str
    columns: tuple[Column, ...]
    prov: Literal["entity", "activity", "agent", "relation"] = "entity"
    derived: bool = False
    events: bool = True

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """The columns with the ones that each recorded row has: process, seq."""
        if self.derived:
            return self.columns
        return (*self.columns, PROCESS, SEQ) if self.events else (*self.columns, PROCESS)

    def column(self, name: str) -> Column:
        """Return the column of that name; KeyError if there is none."""
        for column in self.all_columns:
            if column.name == name:
                return column
        raise KeyError(name)


PROCESS = Column("process", "text", "process that saw this, leads to `processes`")
SEQ = Column("seq", "int", "order of this row among all rows of its process")

_TIME = Column("time", "time", "when, on the clock of the process that saw it")
_KEY = Column("key", "key", "the task")
_STIMULUS = Column("stimulus_id", "text", "Dask's name of the event that caused this")
_WORKER = Column("worker", "text", "address of the worker")
_START = Column("start", "time", "when it began")
_STOP = Column("stop", "time", "when it ended")


def _c(name: str, kind: Kind, meaning: str, unit: str = "") -> Column:
    return Column(name, kind, meaning, unit)


_JOB = (
    Table(
        "processes",
        "process on record (client, scheduler, worker, nanny)",
        1,
        "job",
        "job",
        (
            _c("role", "text", "client, scheduler, worker or nanny"),
            _c("address", "text", "address in Dask, or the client's id"),
            _c("name", "text", "name in Dask"),
            _c("host", "text", "host name"),
            _c("pid", "int", "process id on that host"),
            _c("nthreads", "int", "executor threads of a worker"),
            _c("memory_limit_bytes", "bytes", "memory limit that Dask enforces"),
            _START,
            _STOP,
            _c(
                "exit_reason", "text", "why the recording of this process ended; null if it was cut"
            ),
            _c("python", "text", "version of Python"),
            _c("dask", "text", "version of dask"),
            _c("distributed", "text", "version of distributed"),
            _c("transport", "text", "how its records got to the folder: file or comm"),
            _c("tap", "text", "how transitions were taken: log or plugin"),
        ),
        prov="agent",
        events=False,
    ),
    Table(
        "job",
        "fact of the job layer: launcher, machine, file systems, limits",
        1,
        "job",
        "job",
        (
            _c("name", "text", "what is stated"),
            _c("value", "long", "its value, as text"),
            _c("source", "text", "where it was read"),
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
            _c("name", "text", "dotted name in Dask's configuration"),
            _c("value", "text", "its value as JSON; secrets are redacted"),
            _c("source", "text", "file or variable that it came from"),
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
            _c("name", "text", "name of the distribution"),
            _c("version", "text", "its version"),
        ),
        events=False,
    ),
)

_CLIENT = (
    Table(
        "script",
        "fact on the client's script: path, text, hash, argv, git commit",
        2,
        "workflow system",
        "client",
        (
            _c("name", "text", "what is stated"),
            _c("value", "long", "its value, as text"),
        ),
        events=False,
    ),
    Table(
        "clients",
        "connect or disconnect of a client, as the scheduler saw it",
        2,
        "workflow system",
        "client",
        (
            _TIME,
            _c("client", "text", "Dask's id of the client"),
            _c("action", "text", "connected (already there), connect or disconnect"),
        ),
        prov="agent",
    ),
    Table(
        "submissions",
        "graph handed to the scheduler",
        2,
        "workflow system",
        "client",
        (
            _c("submission", "text", "id of the submission"),
            _TIME,
            _c("client", "text", "Dask's id of the client that sent it"),
            _c("n_tasks", "int", "tasks that it touched"),
            _c("n_keys", "int", "keys that the client asked for"),
            _STIMULUS,
            _c("span", "text", "names of the span that its tasks belong to"),
            _c("code", "long", "source lines that caused it, as far as Dask knows them"),
        ),
        prov="activity",
    ),
    Table(
        "client_submissions",
        "graph sent by a client, as that client saw it",
        2,
        "workflow system",
        "client",
        (
            _TIME,
            _c("client", "text", "Dask's id of the client"),
            _c("first_key", "key", "one of the keys asked for"),
            _c("n_keys", "int", "keys asked for"),
            _c("file", "text", "file of the user's line"),
            _c("line", "int", "number of the user's line"),
            _c("function", "text", "function that the line is in"),
            _c("code", "text", "the user's line"),
            _c("collection", "text", "type of what was handed to Dask"),
        ),
        prov="activity",
    ),
    Table(
        "graph_layers",
        "layer of a graph as the user wrote it, before optimisation",
        2,
        "workflow system",
        "task graph",
        (
            _TIME,
            _c("client", "text", "Dask's id of the client"),
            _c("first_key", "key", "one of the keys asked for, leads to the submission"),
            _c("layer", "text", "name of the layer or expression"),
            _c("type", "text", "its type in Dask"),
            _c("n_tasks", "int", "tasks in it, where known without making them"),
            _c("dependencies", "long", "names of the layers that it needs, as JSON"),
            _c("annotations", "long", "its annotations, as JSON"),
        ),
    ),
    Table(
        "graph_tasks",
        "task of a submission, as it was about to run",
        2,
        "workflow system",
        "task graph",
        (
            _c("submission", "text", "submission it came with"),
            _KEY,
            _c("prefix", "text", "Dask's prefix of the key"),
            _c("group", "text", "Dask's group of the key"),
            _c("function", "text", "name of the function it runs; null for pure data"),
            _c("layer", "text", "layer as the user wrote it, where a client showed it"),
            _c("requested", "bool", "whether the client asked for its result"),
            _c("priority", "text", "Dask's priority, as text"),
            _c("annotations", "text", "annotations, as JSON"),
            _c("definition_bytes", "bytes", "size of its definition in memory, an estimate"),
        ),
    ),
    Table(
        "graph_edges",
        "dependency of a task of a submission",
        2,
        "workflow system",
        "task graph",
        (
            _c("submission", "text", "submission it came with"),
            _KEY,
            _c("dependency", "key", "a task that it needs"),
        ),
        prov="relation",
    ),
)

_SCHEDULER = (
    Table(
        "scheduler_transitions",
        "change of a task's state on the scheduler",
        3,
        "workflow system",
        "scheduler",
        (
            _TIME,
            _KEY,
            _c("start_state", "text", "state before"),
            _c("finish_state", "text", "state after"),
            _STIMULUS,
            _c("worker", "text", "worker concerned, where known"),
            _c("thread", "int", "identity of the thread that ran it"),
            _c("nbytes", "bytes", "size of the result as Dask measures it"),
            _c("typename", "text", "type of the result"),
            _c("startstops", "intervals", "all intervals that the worker reported"),
            _c("metadata", "long", "metadata that the worker sent along, as JSON"),
            _c("run_id", "int", "Dask's number of this attempt"),
            _c("exception", "long", "text of the exception"),
            _c("traceback", "long", "text of the traceback"),
            _c("blame", "key", "task whose failure made this one fail"),
            _c("suspicious", "int", "workers that died while this task was on them"),
        ),
        prov="activity",
    ),
    Table(
        "unmatched_reports",
        "report of a finished or failed task that changed no state",
        3,
        "workflow system",
        "scheduler",
        (
            _TIME,
            _KEY,
            _c("worker", "text", "worker that sent it"),
            _STIMULUS,
            _c("outcome", "text", "finished or erred"),
            _c("run_id", "int", "Dask's number of the attempt"),
            _c("nbytes", "bytes", "size of the result"),
            _c("startstops", "intervals", "all intervals that the worker reported"),
            _c("exception", "long", "text of the exception"),
        ),
        prov="activity",
    ),
    Table(
        "worker_events",
        "worker added, removed, killed, restarted, paused, closed, retired",
        3,
        "workflow system",
        "scheduler",
        (
            _TIME,
            _WORKER,
            _c("name", "text", "name of the worker"),
            _c("action", "text", "what happened to it"),
            _c("reason", "long", "why, as far as anyone said"),
            _STIMULUS,
        ),
        prov="agent",
    ),
    Table(
        "steals",
        "decision of work stealing",
        3,
        "workflow system",
        "scheduler",
        (
            _TIME,
            _KEY,
            _c("source", "text", "worker that had the task"),
            _c("destination", "text", "worker that was to get it"),
            _c("outcome", "text", "request, confirm, already-computing, …"),
            _STIMULUS,
        ),
        prov="activity",
    ),
    Table(
        "log_events",
        "event that anyone logged with Dask",
        3,
        "workflow system",
        "scheduler",
        (
            _TIME,
            _c("topic", "text", "topic it was logged under"),
            _c("message", "long", "the message, as JSON"),
        ),
    ),
    Table(
        "worker_samples",
        "sample of a worker's state over time",
        4,
        "workflow system",
        "worker",
        (
            _TIME,
            _WORKER,
            _c("seen_by", "text", "scheduler or worker"),
            _c("status", "text", "running, paused, closing, …"),
            _c("executing", "int", "tasks executing"),
            _c("ready", "int", "tasks ready to execute"),
            _c("processing", "int", "tasks that the scheduler has assigned to it"),
            _c("in_memory", "int", "results it holds"),
            _c("occupancy_seconds", "seconds", "work the scheduler expects it to have"),
            _c("managed_bytes", "bytes", "results in memory"),
            _c("unmanaged_bytes", "bytes", "memory of the process that is no result"),
            _c("spilled_bytes", "bytes", "results on disk"),
            _c("rss_bytes", "bytes", "resident memory of the process"),
            _c("cpu_percent", "float", "CPU use of the process", "percent of one core"),
            _c("read_bytes_per_second", "float", "disk reads of the host", "bytes per second"),
            _c("write_bytes_per_second", "float", "disk writes of the host", "bytes per second"),
            _c(
                "net_read_bytes_per_second",
                "float",
                "network reads of the host",
                "bytes per second",
            ),
            _c(
                "net_write_bytes_per_second",
                "float",
                "network writes of the host",
                "bytes per second",
            ),
            _c("num_fds", "int", "open file descriptors"),
            _c("loop_lag_seconds", "seconds", "how late the event loop ran a callback"),
            _c("transfer_incoming", "int", "incoming transfers under way"),
            _c("transfer_outgoing", "int", "outgoing transfers under way"),
        ),
    ),
    Table(
        "scheduler_samples",
        "sample of the scheduler's state over time",
        3,
        "workflow system",
        "scheduler",
        (
            _TIME,
            _c("tasks", "int", "tasks that the scheduler knows"),
            _c("queued", "int", "tasks queued on the scheduler"),
            _c("no_worker", "int", "tasks that no worker can run"),
            _c("workers", "int", "workers connected"),
            _c("clients", "int", "clients connected"),
            _c("occupancy_seconds", "seconds", "work expected on all workers"),
            _c("rss_bytes", "bytes", "resident memory of the process"),
            _c("cpu_percent", "float", "CPU use of the process", "percent of one core"),
            _c("loop_lag_seconds", "seconds", "how late the event loop ran a callback"),
        ),
    ),
)

_WORKER_TABLES = (
    Table(
        "worker_transitions",
        "change of a task's state on a worker",
        4,
        "workflow system",
        "worker",
        (
            _TIME,
            _WORKER,
            _KEY,
            _c("start_state", "text", "state before"),
            _c("wanted_state", "text", "state that was asked for"),
            _c("finish_state", "text", "state after"),
            _STIMULUS,
        ),
        prov="activity",
    ),
    Table(
        "worker_log",
        "other entry in a worker's own log",
        4,
        "workflow system",
        "worker",
        (
            _TIME,
            _WORKER,
            _c("event", "text", "compute-task, gather-dependencies, missing-dep, …"),
            _c("key", "key", "the task, where there is one"),
            _c("detail", "long", "the rest of the entry, as text"),
            _STIMULUS,
        ),
        prov="activity",
    ),
    Table(
        "transfer_ends",
        "transfer between two ends, as one end saw it",
        4,
        "workflow system",
        "worker",
        (
            _c("number", "int", "number of this row among those of its process"),
            _c("end", "text", "incoming or outgoing"),
            _START,
            _STOP,
            _WORKER,
            _c("peer", "text", "address of the other end; null for a client"),
            _c("total_bytes", "bytes", "size of all results in it"),
            _c("compressed_bytes", "bytes", "bytes on the wire, outgoing end only"),
            _c("n_keys", "int", "results in it"),
        ),
        prov="activity",
    ),
    Table(
        "transfer_end_keys",
        "result in a transfer, as one end saw it",
        4,
        "workflow system",
        "worker",
        (
            _c("number", "int", "the transfer's number in `transfer_ends`, same process"),
            _KEY,
            _c("nbytes", "bytes", "size of the result"),
        ),
        prov="relation",
    ),
    Table(
        "spills",
        "write to or read from disk by Dask's own memory management",
        4,
        "workflow system",
        "worker",
        (
            _TIME,
            _WORKER,
            _KEY,
            _c("action", "text", "spill or unspill"),
            _c("nbytes", "bytes", "size of the result in memory"),
            _c("disk_bytes", "bytes", "size on disk"),
            _c("seconds", "seconds", "how long it took"),
        ),
        prov="activity",
    ),
)

_RECORD = (
    Table(
        "clock_offsets",
        "measurement of a process's clock against the scheduler's",
        4,
        "record",
        "record",
        (
            _TIME,
            _c("offset_seconds", "seconds", "to add to this process's clock"),
            _c("uncertainty_seconds", "seconds", "half the round trip of the measurement"),
        ),
    ),
    Table(
        "counters",
        "Dask's own counter and the rows on record, read at the same moment",
        3,
        "record",
        "record",
        (
            _TIME,
            _c("name", "text", "what was counted"),
            _c("value", "int", "Dask's count since recording of this process began"),
            _c("recorded", "int", "rows on record for it"),
            _c("final", "bool", "whether this is the last reading, at the end"),
        ),
    ),
    Table(
        "overheads",
        "what recording itself cost a process, up to then",
        3,
        "record",
        "record",
        (
            _TIME,
            _c("cpu_seconds", "seconds", "CPU time of the recorder's thread"),
            _c(
                "process_cpu_seconds",
                "seconds",
                "CPU time of the whole process since recording began",
            ),
            _c("written_bytes", "bytes", "bytes handed to the folder"),
            _c("rows", "int", "rows handed to the folder"),
        ),
    ),
    Table(
        "losses",
        "anything that is known to be missing, dropped or not understood",
        3,
        "record",
        "record",
        (
            _TIME,
            _c("what", "text", "table or thing concerned"),
            _c("count", "int", "rows concerned; null where unknown"),
            _c("reason", "long", "why"),
            _c("where", "text", "file or process concerned"),
        ),
    ),
)

_DERIVED = (
    Table(
        "attempts",
        "stay of a task in processing on a worker",
        4,
        "workflow system",
        "worker",
        (
            _c("attempt", "int", "number of the attempt in this run"),
            _KEY,
            _c("prefix", "text", "Dask's prefix of the key"),
            _c("group", "text", "Dask's group of the key"),
            _WORKER,
            _c("thread", "int", "identity of the thread that ran it"),
            _START,
            _STOP,
            _c("outcome", "text", "memory, erred, retried, rescheduled, released, lost or running"),
            _c("compute_seconds", "seconds", "time in the task's own function"),
            _c("transfer_seconds", "seconds", "time fetching its dependencies"),
            _c("deserialize_seconds", "seconds", "time unpacking its definition"),
            _c("disk_seconds", "seconds", "time reading spilled dependencies"),
            _c("nbytes", "bytes", "size of the result"),
            _c("typename", "text", "type of the result"),
            _c("exception", "long", "text of the exception"),
            _c("traceback", "long", "text of the traceback"),
            _c("run_id", "int", "Dask's number of this attempt"),
            _STIMULUS,
        ),
        prov="activity",
        derived=True,
    ),
    Table(
        "phases",
        "interval of an attempt (Dask's startstops)",
        4,
        "workflow system",
        "worker",
        (
            _c("attempt", "int", "attempt that it belongs to"),
            _KEY,
            _WORKER,
            _c("thread", "int", "identity of the thread that ran the attempt"),
            _c("action", "text", "compute, transfer, deserialize, disk-read, …"),
            _START,
            _STOP,
            _c("seconds", "seconds", "how long it took"),
            _c("source", "text", "where a transfer came from"),
        ),
        prov="activity",
        derived=True,
    ),
    Table(
        "tasks",
        "life of a key, from its first transition until it was forgotten",
        3,
        "workflow system",
        "scheduler",
        (
            _KEY,
            _c("life", "int", "number of this life: a forgotten key may be submitted again"),
            _c("prefix", "text", "Dask's prefix of the key"),
            _c("group", "text", "Dask's group of the key"),
            _c("function", "text", "name of the function it runs"),
            _c("state", "text", "last state that mattered: memory, erred, or where it stopped"),
            _c("worker", "text", "worker of the last attempt"),
            _c("n_attempts", "int", "attempts"),
            _c("submitted", "time", "first transition"),
            _c("started", "time", "first assigned to a worker"),
            _c("finished", "time", "result first in memory, or failed"),
            _c("forgotten", "time", "forgotten by the scheduler"),
            _c("compute_seconds", "seconds", "time in the task's function, all attempts"),
            _c("transfer_seconds", "seconds", "time fetching dependencies, all attempts"),
            _c("wait_seconds", "seconds", "from submission to the first attempt"),
            _c("nbytes", "bytes", "size of the result"),
            _c("typename", "text", "type of the result"),
            _c("n_dependencies", "int", "tasks that it needs"),
            _c("n_dependents", "int", "tasks that need it"),
            _c("exception", "long", "text of the exception, if it failed"),
        ),
        prov="activity",
        derived=True,
    ),
    Table(
        "transfers",
        "physical transfer between two ends, counted once",
        4,
        "workflow system",
        "worker",
        (
            _c("transfer", "int", "number of the transfer in this run"),
            _START,
            _STOP,
            _c("source", "text", "address that sent"),
            _c("destination", "text", "address that received; null for a client"),
            _c("total_bytes", "bytes", "size of all results in it"),
            _c("compressed_bytes", "bytes", "bytes on the wire"),
            _c("seen_by", "text", "source, destination or both"),
            _c("n_keys", "int", "results in it"),
        ),
        prov="activity",
        derived=True,
    ),
    Table(
        "transfer_keys",
        "result in a physical transfer",
        4,
        "workflow system",
        "worker",
        (
            _c("transfer", "int", "transfer it was in"),
            _KEY,
            _c("nbytes", "bytes", "size of the result"),
        ),
        prov="relation",
        derived=True,
    ),
    Table(
        "config_differences",
        "setting that is not the same in all processes",
        1,
        "job",
        "config",
        (
            _c("name", "text", "dotted name in Dask's configuration"),
            _c("value", "text", "a value of it, as JSON; null where it is not set"),
            _c("n_processes", "int", "processes with this value"),
            _c("processes", "long", "these processes"),
        ),
        derived=True,
    ),
    Table(
        "package_mismatches",
        "package that has not the same version in all processes",
        1,
        "job",
        "config",
        (
            _c("name", "text", "name of the distribution, or python"),
            _c("version", "text", "a version of it; null where it is not installed"),
            _c("n_processes", "int", "processes with this version"),
            _c("processes", "long", "these processes"),
        ),
        derived=True,
    ),
    Table(
        "workers",
        "worker, from its first sign of life to its end",
        3,
        "workflow system",
        "scheduler",
        (
            _WORKER,
            _c("name", "text", "name of the worker"),
            _c("process", "text", "its process, leads to `processes`; null if it is not on record"),
            _c("host", "text", "host name"),
            _c("nthreads", "int", "executor threads"),
            _c("memory_limit_bytes", "bytes", "memory limit that Dask enforces"),
            _START,
            _STOP,
            _c("end_reason", "long", "why it left; null if it was there at the end"),
            _c("n_attempts", "int", "attempts on it"),
            _c("compute_seconds", "seconds", "time in tasks' functions on it"),
        ),
        prov="agent",
        derived=True,
    ),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (*_JOB, *_CLIENT, *_SCHEDULER, *_WORKER_TABLES, *_RECORD, *_DERIVED)
}

RECORDED = {name: table for name, table in TABLES.items() if not table.derived}
DERIVED = {name: table for name, table in TABLES.items() if table.derived}

_MARK = "\x00"


def wire_key(key: Any) -> str:
    r"""Return a text that stands for one key of Dask and for no other.

    A text key stands for itself. Any other key is the text that Dask shows for it behind
    a mark with its type, so that ``"('x', 0)"`` and ``('x', 0)`` stay two keys.

    >>> wire_key("inc-1")
    'inc-1'
    >>> wire_key(("x", 0))
    "\x00tuple\x00('x', 0)"
    >>> wire_key("\x00odd")
    '\x00str\x00\x00odd'
    """
    if key.__class__ is str:
        return f"{_MARK}str{_MARK}{key}" if key.startswith(_MARK) else key
    return f"{_MARK}{type(key).__name__}{_MARK}{key}"


def split_wire_key(wire: str) -> tuple[str, str]:
    r"""Return the text that Dask shows for a key, and its type.

    >>> split_wire_key("\x00tuple\x00('x', 0)")
    ("('x', 0)", 'tuple')
    >>> split_wire_key("inc-1")
    ('inc-1', 'str')
    """
    if not wire.startswith(_MARK):
        return wire, "str"
    kind, _, text = wire[1:].partition(_MARK)
    return text, kind
