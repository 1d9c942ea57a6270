"""Convert the graphs in the coupler's file to rows of ``submissions`` and ``graph_*``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dask_strata.importers.mofka.rows import constant, key_columns, key_types, origin, table

_SUBMISSIONS = ("submission", "time", "client", "n_tasks", "n_keys", "file", "line", "cut")
_TASKS = ("submission", "key", "requested")
_EDGES = ("submission", "key", "dependency")


def _columns(names: tuple[str, ...]) -> dict[str, list[Any]]:
    return {name: [] for name in names}


@dataclass
class GraphRows:
    """Rows of graphs that are not written yet.

    Attributes
    ----------
    submissions, tasks, edges : dict of str to list
        Columns of ``submissions``, ``graph_tasks`` and ``graph_edges``.

    Examples
    --------
    >>> graphs = GraphRows()
    >>> graphs.add({"line": 2, "time": 0}, ["b"], {"a": [], "b": ["a"]})
    >>> len(graphs), graphs.tables()["graph_edges"]["dependency"].to_pylist()
    (4, ['a'])
    """

    submissions: dict[str, list[Any]] = field(default_factory=lambda: _columns(_SUBMISSIONS))
    tasks: dict[str, list[Any]] = field(default_factory=lambda: _columns(_TASKS))
    edges: dict[str, list[Any]] = field(default_factory=lambda: _columns(_EDGES))

    def __len__(self) -> int:
        return len(self.submissions["line"]) + len(self.tasks["key"]) + len(self.edges["key"])

    def add(
        self, row: dict[str, Any], requested: list[str], dependencies: dict[str, list[str]]
    ) -> None:
        """Add a graph.

        Parameters
        ----------
        row : dict
            The row of the file; its time is in nanoseconds since the epoch.
        requested : list of str
            Keys that the client requested.
        dependencies : dict of str to list of str
            Each key of the graph, and its dependencies.
        """
        submission = f"graph-{row['line']}"
        for name in ("time", "client", "file", "line", "cut"):
            self.submissions[name].append(row.get(name))
        self.submissions["submission"].append(submission)
        self.submissions["n_tasks"].append(len(dependencies))
        self.submissions["n_keys"].append(len(requested))
        requested_keys = set(requested)
        for key, needed in dependencies.items():
            self.tasks["submission"].append(submission)
            self.tasks["key"].append(key)
            self.tasks["requested"].append(key in requested_keys)
            for dependency in needed:
                self.edges["submission"].append(submission)
                self.edges["key"].append(key)
                self.edges["dependency"].append(dependency)

    def tables(self) -> dict[str, pa.Table]:
        """Return the rows by table."""
        submissions = {name: pa.array(values) for name, values in self.submissions.items()}
        tasks, edges = (
            {name: pa.chunked_array([values], pa.string()) for name, values in columns.items()}
            for columns in (
                {k: v for k, v in self.tasks.items() if k != "requested"},
                self.edges,
            )
        )
        return {
            "submissions": table(
                time=submissions["time"].cast(pa.int64()).cast(pa.timestamp("ns", "UTC")),
                **{n: submissions[n] for n in ("submission", "client", "n_tasks", "n_keys")},
                process=constant("scheduler", len(self.submissions["line"])),
                **origin(submissions),
            ),
            "graph_tasks": table(
                submission=tasks["submission"],
                **key_columns(tasks["key"]),
                requested=pa.array(self.tasks["requested"], pa.bool_()),
                process=constant("scheduler", len(self.tasks["key"])),
            ),
            "graph_edges": table(
                submission=edges["submission"],
                **key_columns(edges["key"]),
                dependency=edges["dependency"],
                dependency_type=key_types(edges["dependency"]),
                process=constant("scheduler", len(self.edges["key"])),
            ),
        }
