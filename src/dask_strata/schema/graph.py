"""Tables of the task graph: layers, tasks, dependencies, claimed inputs."""

from __future__ import annotations

from dask_strata.schema.columns import KEY, TIME, Table, col

GRAPH = (
    Table(
        "client_graphs",
        "graph of a client's submission, as the user wrote it and as the client sent it",
        2,
        "workflow system",
        "task graph",
        (
            TIME,
            col("client", "text", "Dask's id of the client"),
            col("first_key", "key", "one of the requested keys, leads to the submission"),
            col("n_layers", "int", "layers or operations, as written"),
            col(
                "n_tasks",
                "int",
                "tasks as written; null for expressions, of which Dask generates no tasks "
                "before it has optimised them",
            ),
            col(
                "expression",
                "long",
                "the expression that the user wrote, as Dask prints it; null for graphs",
                sensitivity="code",
            ),
            col(
                "sent_expression",
                "long",
                "the same expression as the client sent it: optimised and lowered",
                sensitivity="code",
            ),
        ),
    ),
    Table(
        "graph_layers",
        "layer of a graph, or operation of an expression",
        2,
        "workflow system",
        "task graph",
        (
            TIME,
            col("client", "text", "Dask's id of the client"),
            col("first_key", "key", "one of the requested keys, leads to the submission"),
            col(
                "stage",
                "text",
                "written: as the user wrote it; sent: only in the graph that the client sent, "
                "after Dask optimised it",
            ),
            col("layer", "text", "name of the layer or operation"),
            col("type", "text", "its type in Dask"),
            col(
                "n_tasks",
                "int",
                "tasks in it: as written if Dask knows their number without generating them, or "
                "else as the scheduler received them; null if it received none",
            ),
            col("dependencies", "long", "names of the layers that it depends on, as JSON"),
            col("annotations", "long", "its annotations, as JSON", sensitivity="text"),
            col(
                "annotation_functions",
                "text",
                "annotations that Dask computes for each task, with their functions, as JSON; "
                "`graph_tasks.annotations` has the values",
            ),
        ),
    ),
    Table(
        "graph_tasks",
        "task of a submission, as the scheduler received it",
        2,
        "workflow system",
        "task graph",
        (
            col(
                "submission",
                "text",
                "submission that contains it; null for a task from before the recording, see "
                "`present_tasks`",
            ),
            KEY,
            col("prefix", "text", "Dask's prefix of the key"),
            col("group", "text", "Dask's group of the key"),
            col(
                "function",
                "text",
                "name of the function that produces its result; null for pure data",
            ),
            col(
                "functions",
                "text",
                "names of all functions that it calls, in order, and of functions among their "
                "arguments, as JSON, 200 at most; null if it is `function` alone",
            ),
            col("layer", "text", "its layer in `graph_layers`; null without a recorded client"),
            col(
                "fused_layers",
                "text",
                "layers of the tasks that Dask fused into it, as JSON; null if none were",
            ),
            col("fused_prefixes", "text", "prefixes of the keys of these tasks, as JSON"),
            col("requested", "bool", "whether the client requested its result"),
            col("priority", "text", "Dask's priority, as text"),
            col("annotations", "text", "annotations, as JSON", sensitivity="text"),
            col("span", "text", "id of its span in `spans`; null in Dask's default span"),
            col("definition_bytes", "bytes", "size of its definition in memory, an estimate"),
        ),
    ),
    Table(
        "graph_edges",
        "dependency of a task of a submission",
        2,
        "workflow system",
        "task graph",
        (
            col("submission", "text", "submission that contains the task; null likewise"),
            KEY,
            col("dependency", "key", "a task that it depends on"),
        ),
        prov="relation",
    ),
    Table(
        "claimed_inputs",
        "input that a task's definition names",
        2,
        "workflow system",
        "task graph",
        (
            col("submission", "text", "submission that contains the task; null likewise"),
            KEY,
            col("uri", "text", "file or store, without credentials", sensitivity="path"),
            col(
                "dataset",
                "text",
                "name of the dataset: a path within the file, or the user's name for it",
                sensitivity="path",
            ),
            col("tree", "text", "tree of a ROOT file"),
            col("first", "int", "first entry, row, byte or index, see `unit`"),
            col("last", "int", "end of the range, exclusive"),
            col("unit", "text", "unit of first and last: entries, rows, bytes, row groups, …"),
            col("selection", "long", "the ranges as JSON, if there are several"),
            col("columns", "long", "columns or branches, as JSON"),
            col("nbytes", "bytes", "bytes, if the definition contains their number"),
            col("extractor", "text", "extractor that recognised it"),
        ),
        prov="entity",
    ),
    Table(
        "key_prefixes",
        "key of an imported run whose prefix is in no row of the scheduler",
        2,
        "workflow system",
        "task graph",
        (
            KEY,
            col("prefix", "text", "Dask's prefix of the key, computed from the key's text"),
        ),
        imported=True,
    ),
)
