"""Lineage: the inputs that a task depends on, and the tasks that depend on a file.

An input is *claimed* if the definition of a task names it, and *seen* if the task opened it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dask_strata.run import Run, Task

#: A task: the text that Dask shows for its key, and the key's type.
Key = tuple[str, str]


@dataclass(frozen=True)
class Input:
    """An input of a task.

    Attributes
    ----------
    key, key_type : str
        The task.
    kind : str
        ``claimed`` if the task's definition names it, ``seen`` if the task opened it.
    uri : str
        File or store.
    mode : str
        read or update.
    dataset, tree, first, last, unit, columns
        The part of it, if the definition names one: see the table ``task_inputs``.
    """

    key: str
    key_type: str
    kind: str
    uri: str
    mode: str
    dataset: str | None
    tree: str | None
    first: int | None
    last: int | None
    unit: str | None
    columns: str | None


@dataclass(frozen=True)
class Lineage:
    """The inputs of a task's result.

    Attributes
    ----------
    key, key_type : str
        The task.
    tasks : tuple of (key, key type)
        The task and all tasks that it depends on, nearest first.
    inputs : tuple of Input
        The inputs of these tasks.
    """

    key: str
    key_type: str
    tasks: tuple[Key, ...]
    inputs: tuple[Input, ...]

    @property
    def claimed(self) -> tuple[Input, ...]:
        """Inputs that definitions of tasks name."""
        return tuple(i for i in self.inputs if i.kind == "claimed")

    @property
    def seen(self) -> tuple[Input, ...]:
        """Inputs that tasks opened."""
        return tuple(i for i in self.inputs if i.kind == "seen")

    @property
    def files(self) -> tuple[str, ...]:
        """Files and stores of all inputs, each once."""
        return tuple(dict.fromkeys(i.uri for i in self.inputs))


@dataclass(frozen=True)
class Dependents:
    """The tasks, results and files that depend on a file.

    Attributes
    ----------
    uri : str
        The file, store or folder.
    readers : tuple of (key, key type)
        Tasks that have it as an input.
    tasks : tuple of (key, key type)
        The readers and all tasks that depend on them, nearest first.
    outputs : tuple of (key, key type)
        Tasks among them whose results a client requested.
    written : tuple of str
        Files that these tasks opened for writing.
    """

    uri: str
    readers: tuple[Key, ...]
    tasks: tuple[Key, ...]
    outputs: tuple[Key, ...]
    written: tuple[str, ...]


def lineage(task: Task) -> Lineage:
    """Return the inputs that a task depends on.

    Parameters
    ----------
    task : Task
        The task.
    """
    start = (task.key, task.key_type)
    needs: dict[Key, list[Key]] = {}
    for key, dependency in _edges(task.run):
        needs.setdefault(key, []).append(dependency)
    tasks = _reachable([start], needs)
    order = {key: number for number, key in enumerate(tasks)}
    found = [i for i in _inputs(task.run) if (i.key, i.key_type) in order]
    found.sort(key=lambda i: order[i.key, i.key_type])
    return Lineage(*start, tuple(tasks), tuple(dict.fromkeys(found)))


def dependents_of(run: Run, uri: str | os.PathLike[str]) -> Dependents:
    """Return the tasks, results and written files that depend on a file.

    Parameters
    ----------
    run : Run
        The run.
    uri : str or path
        The file, store or folder as the tables name it; a store or folder includes its content.
    """
    name = os.fspath(uri)
    if "://" not in name:
        name = os.path.abspath(name)
    inside = name.rstrip("/") + "/"
    readers = [
        (i.key, i.key_type)
        for i in _inputs(run)
        if i.uri == name or i.uri.startswith(inside) or i.uri == inside
    ]
    needed: dict[Key, list[Key]] = {}
    for key, dependency in _edges(run):
        needed.setdefault(dependency, []).append(key)
    readers = list(dict.fromkeys(readers))
    tasks = _reachable(readers, needed)
    following = set(tasks)
    requested = _pairs(run, "select distinct key, key_type from graph_tasks where requested")
    outputs = following.intersection(requested)
    return Dependents(
        name,
        tuple(readers),
        tuple(tasks),
        tuple(key for key in tasks if key in outputs),
        tuple(_written(run, following)),
    )


def _reachable(start: Iterable[Key], edges: dict[Key, list[Key]]) -> list[Key]:
    """Return the keys that edges lead to, nearest first, each once."""
    found = dict.fromkeys(start)
    for key in (queue := list(found)):
        for other in edges.get(key, ()):
            if other not in found:
                found[other] = None
                queue.append(other)
    return queue


def _edges(run: Run) -> Iterator[tuple[Key, Key]]:
    names = ["key", "key_type", "dependency", "dependency_type"]
    table = run["graph_edges"].to_arrow().select(names)
    key, key_type, dependency, dependency_type = (table[name].to_pylist() for name in names)
    return zip(
        zip(key, key_type, strict=True), zip(dependency, dependency_type, strict=True), strict=True
    )


def _inputs(run: Run) -> Iterator[Input]:
    rows = run.rows(
        "select key, key_type, kind, uri, mode, dataset, tree, first, last, unit, columns "
        "from task_inputs where mode <> 'write' and uri is not null "
        "order by kind, uri, first, last, key"
    )
    return (Input(**row) for row in rows)


def _pairs(run: Run, query: str) -> list[Key]:
    return [(row["key"], row["key_type"]) for row in run.rows(query)]


def _written(run: Run, tasks: set[Key]) -> Iterator[str]:
    rows: list[dict[str, Any]] = run.rows(
        "select uri, key, key_type from task_inputs "
        "where kind = 'seen' and mode <> 'read' order by uri"
    )
    return iter(dict.fromkeys(r["uri"] for r in rows if (r["key"], r["key_type"]) in tasks))
