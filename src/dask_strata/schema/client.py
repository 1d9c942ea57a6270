"""Tables of the client: its script, its connections, the graphs that it submits."""

from __future__ import annotations

from dask_strata.schema.columns import ORIGIN, START, STIMULUS, STOP, TIME, Table, col

_CLIENT = col("client", "text", "Dask's id of the client")

#: The user's line, null if it is unknown.
_LINE = (
    col("file", "text", "file of the user's line", sensitivity="path"),
    col("line", "int", "number of the user's line"),
    col("function", "text", "function that contains the line"),
    col("code", "text", "the user's line", sensitivity="code"),
)

CLIENT = (
    Table(
        "script",
        "fact about the client's script: path, text, hash, argv, git commit",
        2,
        "workflow system",
        "client",
        (
            col("name", "text", "name of the fact"),
            col("value", "long", "its value, as text"),
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
            TIME,
            col("client", "text", "Dask's id of the client"),
            col(
                "action",
                "text",
                "connect, disconnect, or connected (before the recording began)",
            ),
            *ORIGIN,
        ),
        prov="agent",
    ),
    Table(
        "submissions",
        "graph that the scheduler received",
        2,
        "workflow system",
        "client",
        (
            col("submission", "text", "id of the submission"),
            TIME,
            col("client", "text", "Dask's id of the client that sent it"),
            col("n_tasks", "int", "tasks of the graph that the scheduler created or updated"),
            col("n_keys", "int", "keys whose results the client requested"),
            STIMULUS,
            col("span", "text", "tags of the span of its first task, as JSON", sensitivity="text"),
            col(
                "code",
                "long",
                "source lines that submitted it, if Dask recorded them",
                sensitivity="code",
            ),
            *ORIGIN,
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
            TIME,
            col("client", "text", "Dask's id of the client"),
            col("first_key", "key", "one of the requested keys"),
            col("n_keys", "int", "keys whose results the client requested"),
            col("file", "text", "file of the user's line", sensitivity="path"),
            col("line", "int", "number of the user's line"),
            col("function", "text", "function that contains the line"),
            col("code", "text", "the user's line", sensitivity="code"),
            col("cell", "int", "execution count of the notebook's cell that was running"),
            col("cell_code", "long", "text of this cell", sensitivity="code"),
            col(
                "collection",
                "text",
                "type of the user's first collection, or of the submitted object",
            ),
            col(
                "began",
                "time",
                "when the client began to make the message: to pickle the graph; null if unknown",
            ),
            col("sent_bytes", "bytes", "pickled graph in this message; null if unknown"),
        ),
        prov="activity",
    ),
    Table(
        "client_samples",
        "time that the client's thread spent at a line of the user's code, by samples every 80 ms",
        2,
        "workflow system",
        "client",
        (
            START,
            STOP,
            _CLIENT,
            col("waiting", "text", "what the thread waited for, as in `task_samples`"),
            *_LINE,
            col(
                "calls",
                "text",
                "module and function that this line called; null if it is the user's own",
            ),
            col("seconds", "seconds", "sum of the times between each sample and the last look"),
            col("cpu_seconds", "seconds", "CPU time of the thread in these times; null if unknown"),
            col(
                "delay_seconds",
                "seconds",
                "time in which the thread was ready to run and had no CPU; null if unknown",
            ),
        ),
        prov="activity",
    ),
    Table(
        "client_calls",
        "gather or scatter of a client",
        2,
        "workflow system",
        "client",
        (
            START,
            STOP,
            _CLIENT,
            col(
                "kind",
                "text",
                "gather (results that have been computed; the wait for these is not included) or "
                "scatter",
            ),
            col("n_keys", "int", "results or data in it; null if it failed"),
            col("nbytes", "bytes", "size of these in the client's memory; null if unknown"),
            *_LINE,
        ),
        prov="activity",
    ),
)
