"""The actions of a crate: the run, its prefixes or its tasks, and what steered them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any

from dask_strata.export.provenance.crate_graph import Graph, moment, ref, refs
from dask_strata.export.provenance.crate_workflow import Tool
from dask_strata.export.provenance.facts import MOMENT
from dask_strata.export.provenance.identifiers import encode, encode_key
from dask_strata.export.provenance.prov_elements import RESULTS
from dask_strata.export.provenance.prov_relations import DEPENDENCIES, FILE_USES
from dask_strata.export.provenance.reading import Reading

COMPLETED = "http://schema.org/CompletedActionStatus"
FAILED = "http://schema.org/FailedActionStatus"

_SECONDS = "http://qudt.org/vocab/unit/SEC"

#: Longest text of an exception, in characters.
_ERROR = 2_000

_DATA = "n_attempts = 0 and (state = 'memory' or finished_before)"

#: Keys whose tasks are sorted at once.
_KEYS = 1 << 16

#: The first key of each range; ids of keys that are not finalised are not consecutive.
_BOUNDS = f"""
    select _key from (select _key, row_number() over (order by _key) as n
                      from (select distinct _key from tasks where n_attempts > 0))
    where (n - 1) % {_KEYS} = 0 order by _key
"""  # noqa: S608  a number of this module

#: Tasks with attempts of a range of keys, and the results and files that they used. Of several
#: lives of a dependency, the last one that finished before the task started.
_TASKS = f"""
    with t as (select * from tasks where _key >= {{first}} and _key < {{last}} and n_attempts > 0),
    made as (select distinct _key from attempts where outcome = 'memory'),
    edges as (select distinct _key, _dependency from graph_edges
              where _key >= {{first}} and _key < {{last}}),
    results as (
        select _key, life, key, key_type, finished from tasks
        where _key in (select _dependency from edges)
          and (_key in (from made) or {_DATA})
    ), used as (
        select a._key, a.life, e._dependency, min(d.key) as key, min(d.key_type) as key_type,
               coalesce(max(d.life) filter (d.finished <= a.started), min(d.life)) as used_life
        from t a join edges e using (_key) join results d on d._key = e._dependency
        group by a._key, a.life, e._dependency
    ), lists as (
        select _key, life, list([key, key_type, used_life::varchar] order by key, key_type) as used
        from used group by _key, life
    ), files as (
        select _key, list(distinct uri) filter (mode <> 'write') as read,
               list(distinct uri) filter (mode <> 'read') as written
        from task_inputs where uri is not null and _key >= {{first}} and _key < {{last}}
        group by _key
    )
    select t.key, t.key_type, t.life, t.prefix, t.state, t.exception, t._key in (from made) as made,
           {MOMENT.format("t.started")} as start, {MOMENT.format("t.finished")} as stop,
           t.n_attempts, t.compute_seconds, t.nbytes, t.typename, l.used,
           list_sort(f.read), list_sort(f.written)
    from t left join lists l using (_key, life) left join files f using (_key)
    where t.prefix is not null order by t.key, t.key_type, t.life
"""  # noqa: S608  expressions of this package


@dataclass
class Uses:
    """What each prefix used and made.

    Attributes
    ----------
    inputs, outputs : dict of str to list of str
        Identifiers by prefix.
    """

    inputs: dict[str, list[str]] = field(default_factory=dict)
    outputs: dict[str, list[str]] = field(default_factory=dict)

    def add(self, prefix: str, identifier: str, *, output: bool) -> None:
        """Add the use of an entity."""
        (self.outputs if output else self.inputs).setdefault(prefix, []).append(identifier)


def edges_of(reading: Reading) -> list[tuple[str, str]]:
    """Return the prefixes with the prefixes whose results they used."""
    return [(prefix, dependency) for prefix, dependency, _ in reading.columns(DEPENDENCIES)]


def uses_of(reading: Reading, edges: Iterable[tuple[str, str]], files: Mapping[str, str]) -> Uses:
    """Return what each prefix used and made."""
    found = Uses()
    for prefix, uri, read, written, _ in reading.columns(FILE_USES):
        if uri in files and read:
            found.add(prefix, files[uri], output=False)
        if uri in files and written:
            found.add(prefix, files[uri], output=True)
    for prefix, dependency in edges:
        found.add(prefix, results_id(dependency), output=False)
    return found


def results_id(prefix: str) -> str:
    """Return the identifier of the results of a prefix."""
    return f"#results-{encode(prefix)}"


def add_results(graph: Graph, reading: Reading) -> list[str]:
    """Write the results of prefixes, and return the prefixes."""
    found = []
    for prefix, n, size in reading.columns(RESULTS):
        what = f"{n:,} {'result' if n == 1 else 'results'}"
        graph.add(
            {
                "@id": results_id(prefix),
                "@type": "PropertyValue",
                "name": f"results of {prefix}",
                "value": what if size is None else f"{what}, {size:,} bytes in memory",
            }
        )
        found.append(prefix)
    return found


def add_prefixes(
    graph: Graph, tools: Iterable[Tool], uses: Uses, made: set[str], agents: list[str]
) -> int:
    """Write an action for each prefix, and its control; return their number."""
    n = 0
    for n, tool in enumerate(tools, 1):  # noqa: B007  the last is their number
        prefix = tool.prefix
        results = [results_id(prefix)] if prefix in made else []
        usage = list(_usage(tool))
        for each in usage:
            graph.add(each)
        graph.add(
            {
                "@id": action_id(tool),
                "@type": "CreateAction",
                "name": f"Tasks of {prefix}",
                "description": f"{_count(tool.n_tasks, 'task')}, {tool.n_erred:,} failed"
                + ("" if tool.n_attempts is None else f"; {_count(tool.n_attempts, 'attempt')}"),
                "instrument": ref(tool.id),
                "agent": refs(agents),
                "startTime": moment(tool.start),
                "endTime": moment(tool.stop),
                "actionStatus": FAILED if tool.n_erred else COMPLETED,
                "error": None if tool.exception is None else tool.exception[:_ERROR],
                "object": refs(uses.inputs.get(prefix, [])),
                "result": refs([*results, *uses.outputs.get(prefix, [])]),
                "resourceUsage": refs(each["@id"] for each in usage),
            }
        )
        _add_control(graph, tool, iter([action_id(tool)]))
    return n


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def action_id(tool: Tool) -> str:
    """Return the identifier of the action of a prefix."""
    return f"#action-{encode(tool.prefix)}"


def control_id(prefix: str) -> str:
    """Return the identifier of what steered the tasks of a prefix."""
    return f"#control-{encode(prefix)}"


def _usage(tool: Tool) -> Iterator[dict[str, Any]]:
    """Yield the resources that the tasks of a prefix used."""
    for name, value in (("compute", tool.compute_seconds), ("cpu", tool.cpu_seconds)):
        if value is not None:
            yield {
                "@id": f"#{name}-seconds-{encode(tool.prefix)}",
                "@type": "PropertyValue",
                "name": f"{name} seconds of {tool.prefix}",
                "propertyID": f"urn:dask-strata:terms:{name}Seconds",
                "value": repr(value),
                "unitCode": _SECONDS,
            }


def _add_control(graph: Graph, tool: Tool, actions: Iterator[str]) -> None:
    graph.add(
        {
            "@id": control_id(tool.prefix),
            "@type": "ControlAction",
            "name": f"Scheduling of {tool.prefix}",
            "instrument": ref(tool.step),
            "object": actions,
        }
    )


def add_tasks(
    graph: Graph,
    reading: Reading,
    tools: Iterable[Tool],
    files: Mapping[str, str],
    agents: list[str],
) -> int:
    """Write an action for each task, and the control of each prefix; return the number of tasks."""
    n = 0
    by_prefix = {tool.prefix: tool for tool in tools}
    for n, row in enumerate(_tasks(reading), 1):  # noqa: B007  the last is their number
        _add_task(graph, row, by_prefix, files, agents)
    data = f"select key, key_type, life, nbytes, typename from tasks where {_DATA}"  # noqa: S608  a condition of this module
    for key, key_type, life, size, kind in reading.columns(f"{data} order by all"):
        _add_result(graph, f"#result-{_task(key, key_type, life)}", key, size, kind)
    ids = (
        "select prefix, key, key_type, life from tasks "
        "where n_attempts > 0 and prefix is not null order by all"
    )
    for prefix, group in groupby(reading.columns(ids), key=lambda row: row[0]):
        if prefix in by_prefix:
            _add_control(graph, by_prefix[prefix], (f"#task-{_task(*row[1:])}" for row in group))
    return n


def _tasks(reading: Reading) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of `_TASKS` of all keys, range by range."""
    bounds = [row["_key"] for row in reading.run.rows(_BOUNDS)]
    for first, last in pairwise([*bounds, 1 << 62]):
        yield from reading.columns(_TASKS.format(first=first, last=last))


def _task(key: str, key_type: str | None, life: int) -> str:
    """Return the part of identifiers for a life of a key."""
    return encode_key(key, key_type) + (f".life{life}" if int(life) > 1 else "")


def _add_result(
    graph: Graph, identifier: str, key: str, size: int | None, kind: str | None
) -> None:
    parts = [kind or "a result", *([] if size is None else [f"{size:,} bytes in memory"])]
    named = {"@id": identifier, "@type": "PropertyValue", "name": f"result of {key}"}
    graph.add({**named, "value": ", ".join(parts)})


def _add_task(
    graph: Graph,
    row: tuple[Any, ...],
    tools: Mapping[str, Tool],
    files: Mapping[str, str],
    agents: list[str],
) -> None:
    key, key_type, life, prefix, state, error, made, start, stop, attempts, *rest = row
    seconds, size, kind, used, read, written = rest
    task = _task(key, key_type, life)
    inputs = [f"#result-{_task(*each)}" for each in used or ()]
    inputs += [files[uri] for uri in read or () if uri in files]
    outputs = [files[uri] for uri in written or () if uri in files]
    if made:
        outputs.insert(0, f"#result-{task}")
        _add_result(graph, f"#result-{task}", key, size, kind)
    failed = state == "erred"
    status = FAILED if failed else COMPLETED if made else None
    computed = "" if seconds is None else f", {seconds:.3g} s of computation"
    graph.add(
        {
            "@id": f"#task-{task}",
            "@type": "CreateAction",
            "name": key,
            "description": f"{_count(attempts, 'attempt')}{computed}",
            "instrument": ref(tools[prefix].id),
            "agent": refs(agents),
            "startTime": moment(start),
            "endTime": moment(stop),
            "actionStatus": status,
            "error": error[:_ERROR] if failed and error is not None else None,
            "object": refs(inputs),
            "result": refs(outputs),
        }
    )
