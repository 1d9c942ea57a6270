"""Tables of the client: its script, its connections, the graphs that it submits."""

from __future__ import annotations

from dask_strata.schema.columns import ORIGIN, STIMULUS, TIME, Table, col

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
            col("span", "text", "names of the span that its tasks belong to"),
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
            col("collection", "text", "type of the submitted object"),
        ),
        prov="activity",
    ),
)
