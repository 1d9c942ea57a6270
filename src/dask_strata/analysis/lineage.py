"""Lineage: the inputs that a task depends on, and the tasks that depend on a file.

An input is *claimed* if the definition of a task names it, and *seen* if the task opened it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dask_strata.errors import StrataError, UnknownTaskError
from dask_strata.schema import recorded_text

if TYPE_CHECKING:
    from dask_strata.run import Run, Task

#: A task: the text that Dask shows for its key, and the key's type.
Key = tuple[str, str]

_Ints = npt.NDArray[np.int64]

#: Most names that an error message lists.
_HINTS = 3


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


@dataclass(frozen=True)
class RelatedTask:
    """A task that another task or a file is made from, or that is made of it.

    Attributes
    ----------
    key, key_type : str
        The task.
    steps : int
        Its distance: 1 for a direct dependency or dependent, and for a reader or writer of a file.
    prefix, state : str or None
        Dask's prefix of the key, and the state in the task's last life.
    nbytes : int or None
        Size of the result.
    requested : bool
        Whether a client requested the result.
    worker, host, pid
        The place of its last attempt; None if that is not on record.
    """

    key: str
    key_type: str
    steps: int
    prefix: str | None
    state: str | None
    nbytes: int | None
    requested: bool
    worker: str | None
    host: str | None
    pid: int | None


@dataclass(frozen=True)
class FileUse:
    """A file, or a range of it, that a task reads or writes.

    Attributes
    ----------
    uri : str
        File or store.
    mode : str
        read, write or update.
    claimed, seen : bool
        Whether the task's definition names it, and whether the task opened it.
    dataset, tree, first, last, unit, columns
        The part of it, if it is known: see the table ``task_inputs``.
    nbytes : int or None
        Size of that part, if the definition states it.
    events : int or None
        Entries of that part, if it is a chunk of events.
    read_bytes : int or None
        Bytes read from it.
    bytes_from : str or None
        Source of `read_bytes`: library (its own counters), darshan (traces), or thread (the
        kernel's count for the task's thread, which opened no other file, and unless threads of
        libraries are known to have read it, too).
    key, key_type, steps
        The task and its distance, see `RelatedTask`; 0 for the task itself.
    worker, thread, host, pid
        The place of the last attempt; None if that is not on record.
    """

    uri: str
    mode: str
    claimed: bool
    seen: bool
    dataset: str | None
    tree: str | None
    first: int | None
    last: int | None
    unit: str | None
    columns: str | None
    nbytes: int | None
    events: int | None
    read_bytes: int | None
    bytes_from: str | None
    key: str
    key_type: str
    steps: int
    worker: str | None
    thread: int | None
    host: str | None
    pid: int | None


@dataclass(frozen=True)
class Related:
    """Tasks on one side of a task or file, and their files.

    Attributes
    ----------
    tasks : tuple of RelatedTask
        The tasks, nearest first.
    files : tuple of FileUse
        Files that they and the task itself read (before it), or write (after it).
    results : tuple of (key, key type)
        Readers, or tasks after it, whose results a client requested; empty before it.
    left_out_tasks, left_out_files, left_out_results : int
        Numbers of further ones, beyond the limits.
    """

    tasks: tuple[RelatedTask, ...] = ()
    files: tuple[FileUse, ...] = ()
    results: tuple[Key, ...] = ()
    left_out_tasks: int = 0
    left_out_files: int = 0
    left_out_results: int = 0


@dataclass(frozen=True)
class Trace:
    """The tasks and files that a task or file is made from, and those that are made of it.

    Attributes
    ----------
    subject : str
        ``task`` or ``file``.
    name : str
        The key, or the file as the tables name it.
    key_type : str or None
        Type of the key; None for a file.
    task : RelatedTask or None
        The task itself, if its result or attempts are on record.
    read_by : Related
        For a file, its readers and the ranges that they read; empty for a task.
    made_from, made_of_it : Related
        The tasks before and after it. For a file, those before it include its writers; its
        readers are in `read_by` only.
    """

    subject: str
    name: str
    key_type: str | None
    task: RelatedTask | None
    read_by: Related
    made_from: Related
    made_of_it: Related


def lineage(task: Task) -> Lineage:
    """Return the inputs that a task depends on.

    Parameters
    ----------
    task : Task
        The task.
    """
    ids, _ = _follow(task.run, _ids(task), "_key", "_dependency")
    tasks = [(task.key, task.key_type), *_keys(task.run, ids[1:])]
    order = {key: number for number, key in enumerate(tasks)}
    found = [i for i in _inputs(task.run) if (i.key, i.key_type) in order]
    found.sort(key=lambda i: order[i.key, i.key_type])
    return Lineage(task.key, task.key_type, tuple(tasks), tuple(dict.fromkeys(found)))


def dependents_of(run: Run, uri: str | os.PathLike[str]) -> Dependents:
    """Return the tasks, results and written files that depend on a file.

    Parameters
    ----------
    run : Run
        The run.
    uri : str or path
        The file, store or folder as the tables name it; a store or folder includes its content.
    """
    name = _absolute(uri)
    start = _users(run, name, "mode <> 'write'")
    ids, _ = _follow(run, start, "_dependency", "_key")
    tasks = _keys(run, ids)
    requested = {
        (row["key"], row["key_type"])
        for row in run.rows("select distinct key, key_type from graph_tasks where requested")
    }
    return Dependents(
        name,
        tuple(tasks[: len(start)]),
        tuple(tasks),
        tuple(key for key in tasks if key in requested),
        tuple(_written(run, set(tasks))),
    )


def trace(
    run: Run, name: str, *, key_type: str | None = None, depth: int | None = None, limit: int = 0
) -> Trace:
    """Return the tasks and files that a task or file is made from, and those made of it.

    Parameters
    ----------
    run : Run
        The run.
    name : str
        The key of a task; or a file, store or folder, whose content is included. The end of a
        path is sufficient if no other file has it.
    key_type : str, optional
        Name of the key's type; needed only if two keys have the same text.
    depth : int, optional
        Most steps from the task or file; all by default.
    limit : int, optional
        Most rows of each list; 0 for all.

    Returns
    -------
    Trace

    Raises
    ------
    UnknownTaskError
        Two keys have this text.
    StrataError
        The record has neither a task nor a file of this name, or several files.
    """
    name = recorded_text(name)
    try:
        task = run.task(name, key_type)
    except UnknownTaskError as error:
        if key_type is not None or run.key_types(name):
            raise
        return _file_trace(run, _file(run, name, error), depth, limit)
    start = _ids(task)
    (itself,) = _tasks(run, start, np.zeros(1, np.int64))
    before = _side(run, start, 0, depth, limit, after=False)
    after = _side(run, start, 0, depth, limit, after=True)
    return Trace("task", task.key, task.key_type, itself, Related(), before, after)


def _file_trace(run: Run, uri: str, depth: int | None, limit: int) -> Trace:
    readers, writers = (_users(run, uri, f"mode <> '{other}'") for other in ("write", "read"))
    one = np.ones(len(readers), np.int64)
    uses = [u for u in _files(run, readers, one, "mode <> 'write'") if _within(u.uri, uri)]
    results = _requested(run, readers)
    read_by = Related(
        _tasks(run, _first(readers, limit), _first(one, limit)),
        tuple(_first(uses, limit)),
        tuple(_first(results, limit)),
        len(readers) - len(_first(readers, limit)),
        len(uses) - len(_first(uses, limit)),
        len(results) - len(_first(results, limit)),
    )
    before = _side(run, writers, 1, depth, limit, after=False)
    after = _side(run, readers, 1, depth, limit, after=True)
    return Trace("file", uri, None, None, read_by, before, after)


def _side(  # noqa: PLR0913
    run: Run, start: _Ints, distance: int, depth: int | None, limit: int, *, after: bool
) -> Related:
    """Return the tasks before or after others, which have a distance of their own, and files."""
    columns = ("_dependency", "_key") if after else ("_key", "_dependency")
    ids, steps = _follow(run, start, *columns)
    steps = steps + distance
    most = np.inf if depth is None else depth
    uses = _files(run, ids, steps, "mode <> 'read'" if after else "mode <> 'write'")
    listed = steps > (distance if after else 0)
    results = _requested(run, ids[listed]) if after else []
    ids, steps = ids[listed], steps[listed]
    near = _first(ids[steps <= most], limit)
    files = _first([use for use in uses if use.steps <= most], limit)
    return Related(
        _tasks(run, near, steps[: len(near)]),
        tuple(files),
        tuple(_first(results, limit)),
        len(ids) - len(near),
        len(uses) - len(files),
        len(results) - len(_first(results, limit)),
    )


def _first(rows: Any, limit: int) -> Any:
    return rows[:limit] if limit else rows


def _follow(run: Run, start: _Ints, source: str, target: str) -> tuple[_Ints, _Ints]:
    """Return the keys that edges lead to from others, and their distances, nearest first."""
    edges = run.arrow(f"select distinct {source} as a, {target} as b from graph_edges order by 1")  # noqa: S608  names of columns
    a, b = (_array(edges[name]) for name in ("a", "b"))
    ids, number = np.unique(np.concatenate([start, a, b]), return_inverse=True)
    here, rest = number[: len(start)], number[len(start) :]
    a, b = rest[: len(a)], rest[len(a) :]
    first = np.searchsorted(a, np.arange(len(ids) + 1))
    found = np.zeros(len(ids), bool)
    found[here] = True
    levels = [np.asarray(here)]
    while len(levels[-1]):
        counts = first[levels[-1] + 1] - first[levels[-1]]
        at = np.repeat(first[levels[-1]] - np.cumsum(counts) + counts, counts)
        following = np.unique(b[at + np.arange(len(at))])
        following = following[~found[following]]
        found[following] = True
        levels.append(following)
    steps = np.repeat(np.arange(len(levels)), [len(level) for level in levels])
    return ids[np.concatenate(levels)], steps


def _array(column: pa.ChunkedArray) -> _Ints:
    return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False), dtype=np.int64)


def _ids(task: Task) -> _Ints:
    query = "select _key from _keys where key = ? and key_type = ?"
    return _array(task.run.arrow(query, task.key, task.key_type)["_key"])


def _requested(run: Run, ids: _Ints) -> list[Key]:
    rows = run.rows(
        "select distinct key, key_type from graph_tasks "
        "join (select unnest(?::bigint[]) as _key) using (_key) where requested order by 1, 2",
        ids.tolist(),
    )
    return [(row["key"], row["key_type"]) for row in rows]


def _keys(run: Run, ids: _Ints) -> list[Key]:
    rows = run.rows(
        "select key, key_type from (select unnest(?::bigint[]) as _key, "
        "unnest(range(len(?::bigint[]))) as nth) join _keys using (_key) order by nth",
        ids.tolist(),
        ids.tolist(),
    )
    return [(row["key"], row["key_type"]) for row in rows]


#: The keys of a query's parameters with their distances.
_WANTED = "with wanted as (select unnest(?::bigint[]) as _key, unnest(?::bigint[]) as steps)"

_TASKS = """
    , last_lives as (
        select distinct on (_key) _key, prefix, state, nbytes, worker
        from tasks join wanted using (_key) order by _key, life desc
    ), last_attempts as (
        select _key, max(attempt) as attempt from attempts join wanted using (_key) group by _key
    ), asked as (
        select _key, bool_or(requested) as requested
        from graph_tasks join wanted using (_key) group by _key
    )
    select k.key, k.key_type, w.steps, l.prefix, l.state, l.nbytes,
           coalesce(q.requested, false) as requested, l.worker, p.host, p.pid
    from wanted w join _keys k on k._key = w._key
    left join last_lives l on l._key = w._key
    left join last_attempts a on a._key = w._key
    left join _places p on p.attempt = a.attempt
    left join asked q on q._key = w._key
    order by w.steps, k.key, k.key_type
"""


def _tasks(run: Run, ids: _Ints, steps: _Ints) -> tuple[RelatedTask, ...]:
    rows = run.rows(_WANTED + _TASKS, ids.tolist(), steps.tolist())
    return tuple(RelatedTask(**row) for row in rows)


def _files(run: Run, ids: _Ints, steps: _Ints, condition: str) -> list[FileUse]:
    names = ", ".join(name for name in FileUse.__dataclass_fields__ if name != "steps")
    rows = run.rows(
        f"{_WANTED} select {names}, w.steps from _file_uses join wanted w using (_key) "  # noqa: S608  names of fields
        f"where {condition} order by w.steps, uri, first, last, key",
        ids.tolist(),
        steps.tolist(),
    )
    return [FileUse(**row) for row in rows]


def _absolute(uri: str | os.PathLike[str]) -> str:
    name = os.fspath(uri)
    return recorded_text(name if "://" in name else os.path.abspath(name))


def _within(uri: str, folder: str) -> bool:
    return uri.rstrip("/") == folder.rstrip("/") or uri.startswith(folder.rstrip("/") + "/")


def _users(run: Run, uri: str, condition: str) -> _Ints:
    """Return the keys of tasks with a file, or one inside a folder or store, as input or output."""
    inside = uri.rstrip("/") + "/"
    found = run.arrow(
        "select _key from _file_uses where (uri = ? or uri = ? or starts_with(uri, ?)) "  # noqa: S608  conditions of this module
        f"and {condition} group by _key order by min(uri), min(first), _key",
        uri,
        inside,
        inside,
    )
    return _array(found["_key"])


def _file(run: Run, name: str, unknown: UnknownTaskError) -> str:
    """Return the name that tables have for a file.

    Raises
    ------
    StrataError
        There is no such file, or several.
    """
    known: list[str] = [
        row["uri"] for row in run.rows("select distinct uri from _file_uses order by 1")
    ]
    for wanted in (name, _absolute(name)):
        if any(_within(uri, wanted) for uri in known):
            return wanted
    ending = "/" + name.strip("/")
    ends = [uri for uri in known if uri.rstrip("/").endswith(ending)]
    if len(ends) == 1:
        return ends[0]
    if ends:
        some = ", ".join(ends[:_HINTS]) + (", …" if len(ends) > _HINTS else "")
        raise StrataError(
            f"{len(ends)} files of the record end with {name}.", hint=f"Choose: {some}"
        )
    near = run.rows(
        "select uri from (select distinct uri from _file_uses) "
        "where contains(uri, ?) or jaro_winkler_similarity(parse_filename(uri)[:200], ?) > 0.8 "
        "order by jaro_winkler_similarity(parse_filename(uri)[:200], ?) desc, uri limit ?",
        name,
        ending.rpartition("/")[2][:200],
        ending.rpartition("/")[2][:200],
        _HINTS,
    )
    hint = unknown.hint
    if near:
        hint = "Did you mean " + " or ".join(row["uri"][:200] for row in near) + "?"
        if unknown.hint and unknown.hint.startswith("Did you mean"):
            hint = f"{hint}\n{unknown.hint}"
    raise StrataError(f"The record has neither a task nor a file {name}.", hint=hint) from unknown


def _inputs(run: Run) -> Iterator[Input]:
    rows = run.rows(
        "select key, key_type, kind, uri, mode, dataset, tree, first, last, unit, columns "
        "from task_inputs where mode <> 'write' and uri is not null "
        "order by kind, uri, first, last, key"
    )
    return (Input(**row) for row in rows)


def _written(run: Run, tasks: set[Key]) -> Iterator[str]:
    rows: list[dict[str, Any]] = run.rows(
        "select uri, key, key_type from task_inputs "
        "where kind = 'seen' and mode <> 'read' order by uri"
    )
    return iter(dict.fromkeys(r["uri"] for r in rows if (r["key"], r["key_type"]) in tasks))
