"""Tables of the task graph: layers, tasks, dependencies, claimed inputs."""

from __future__ import annotations

from dask_strata.schema.columns import KEY, TIME, Table, col

GRAPH = (
    Table(
        "graph_layers",
        "layer of a graph as the user wrote it, before optimisation",
        2,
        "workflow system",
        "task graph",
        (
            TIME,
            col("client", "text", "Dask's id of the client"),
            col("first_key", "key", "one of the requested keys, leads to the submission"),
            col("layer", "text", "name of the layer or expression"),
            col("type", "text", "its type in Dask"),
            col("n_tasks", "int", "tasks in it; null if Dask would have to generate them to count"),
            col("dependencies", "long", "names of the layers that it depends on, as JSON"),
            col("annotations", "long", "its annotations, as JSON", sensitivity="text"),
        ),
    ),
    Table(
        "graph_tasks",
        "task of a submission, as the scheduler received it",
        2,
        "workflow system",
        "task graph",
        (
            col("submission", "text", "submission that contains it"),
            KEY,
            col("prefix", "text", "Dask's prefix of the key"),
            col("group", "text", "Dask's group of the key"),
            col("function", "text", "name of the function it runs; null for pure data"),
            col("layer", "text", "layer as the user wrote it; null without a recorded client"),
            col("requested", "bool", "whether the client requested its result"),
            col("priority", "text", "Dask's priority, as text"),
            col("annotations", "text", "annotations, as JSON", sensitivity="text"),
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
            col("submission", "text", "submission that contains the task"),
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
            col("submission", "text", "submission that contains the task"),
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
