"""The entities, activities and agents of a run.

By default an activity is a prefix: all tasks that Dask names alike. In detail, each attempt is one,
and each result is an entity. In both, the run is an activity, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from dask_strata.export.provenance.facts import MOMENT, Facts
from dask_strata.export.provenance.identifiers import encode, encode_key
from dask_strata.export.provenance.prov_document import Element, Value
from dask_strata.export.provenance.reading import Reading

#: Qualified names of the parts of a document.
RUN = "activity:run"

#: Prefixes of identifiers, each a namespace of the run.
PARTS = (
    "activity", "prefix", "attempt", "results", "result", "data", "file", "script", "worker",
    "client", "user", "software",
)  # fmt: skip

#: Files that tasks read or wrote. A claim counts where no execution was seen to open the file. Of a
#: file that was seen with several sizes, none is known.
FILES = """
    select uri, bool_or(mode <> 'write') as read, bool_or(mode <> 'read') as written,
           max(file_bytes) as bytes
    from task_inputs left join (
        select uri, case when min(file_bytes) = max(file_bytes) then max(file_bytes) end
            as file_bytes
        from file_opens group by uri) using (uri)
    where uri is not null group by uri order by uri
"""

#: Results by prefix, and data that has no attempt: the client scattered it.
RESULTS = """
    with made as (
        select prefix, count(*) as n, sum(nbytes)::bigint as bytes
        from attempts where outcome = 'memory' group by prefix
        union all
        select prefix, count(*) as n, sum(nbytes)::bigint as bytes from tasks
        where n_attempts = 0 and (state = 'memory' or finished_before) group by prefix
    )
    select prefix, sum(n)::bigint as n, sum(bytes)::bigint as bytes
    from made where prefix is not null group by prefix order by prefix
"""

#: Data without an attempt, one row for each key.
DATA = """
    select key, key_type, max(nbytes) as bytes, min(typename) as typename from tasks
    where n_attempts = 0 and (state = 'memory' or finished_before)
    group by key, key_type order by key, key_type
"""

_PREFIXES = f"""
    select prefix, count(*) as n, count(distinct _key) as n_tasks,
           count(*) filter (outcome in ('erred', 'retried')) as n_erred,
           sum(compute_seconds) as seconds,
           {MOMENT.format("min(start)")} as start,
           case when count(*) = count(stop) then {MOMENT.format("max(stop)")} end as stop
    from attempts where prefix is not null group by prefix order by prefix
"""  # noqa: S608  expressions of this package

_ATTEMPTS = (
    f"attempt, key, prefix, outcome, compute_seconds, {MOMENT.format('start')}, "
    f"{MOMENT.format('stop')}"
)

WORKERS = """
    select worker, min(name) as name, min(host) as host,
           max(nthreads) as nthreads, max(memory_limit_bytes) as memory_limit_bytes
    from (from workers select worker, name, host, nthreads, memory_limit_bytes union all by name
          select distinct worker from attempts)
    where worker is not null group by worker order by worker
"""

CLIENTS = """
    select distinct client from (select client from clients union all
        select client from submissions) where client is not null order by client
"""


def namespaces(facts: Facts) -> dict[str, str]:
    """Return the namespace of each prefix of identifiers."""
    run = f"urn:dask-strata:run:{encode(facts.run_id)}:"
    return {part: f"{run}{part}:" for part in PARTS} | {"strata": "urn:dask-strata:terms:"}


def agents(reading: Reading, facts: Facts) -> Iterator[Element]:
    """Yield workers, clients, users and software."""
    software = "prov:SoftwareAgent"
    for user in facts.user_names:
        yield Element(f"user:{encode(user)}", user, "prov:Person")
    for name, version in facts.software:
        attributes = (("strata:name", name), ("strata:version", version))
        yield Element(
            software_id(name, version), f"{name} {version}", software, None, None, attributes
        )
    for (client,) in reading.columns(CLIENTS):
        yield Element(f"client:{encode(client)}", client, software)
    for row in reading.mappings(WORKERS):
        yield Element(
            f"worker:{encode(row['worker'])}",
            row["worker"],
            software,
            attributes=(
                ("strata:name", row["name"]),
                ("strata:host", row["host"]),
                ("strata:threads", row["nthreads"]),
                ("strata:memoryLimitBytes", row["memory_limit_bytes"]),
            ),
        )


def software_id(name: str, version: str) -> str:
    """Return the identifier of a version of a package."""
    return f"software:{encode(f'{name} {version}')}"


def entities(reading: Reading, facts: Facts, *, detailed: bool) -> Iterator[Element]:
    """Yield scripts, files and results: those of a prefix together, or in detail each one."""
    scripts = (_script(script.process, script.name, script.facts) for script in facts.scripts)
    found = (_attempts_results if detailed else _results)(reading)
    return chain(scripts, _files(reading), found)


def _script(process: str, name: str, facts: dict[str, str]) -> Element:
    wanted = ("path", "sha256", "argv", "module", "git_commit", "git_remote", "git_dirty")
    attributes = tuple((f"strata:{each}", facts.get(each)) for each in wanted)
    return Element(f"script:{encode(process)}", name, "prov:Plan", None, None, attributes)


def _files(reading: Reading) -> Iterator[Element]:
    for uri, read, written, size in reading.columns(FILES):
        yield Element(
            f"file:{encode(uri)}",
            uri,
            "strata:File",
            attributes=(
                ("strata:read", bool(read)),
                ("strata:written", bool(written)),
                ("strata:bytes", size),
            ),
        )


def _results(reading: Reading) -> Iterator[Element]:
    for prefix, n, size in reading.columns(RESULTS):
        attributes = (("strata:results", n), ("strata:bytes", size))
        yield Element(
            f"results:{encode(prefix)}",
            f"results of {prefix}",
            "prov:Collection",
            attributes=attributes,
        )


def _attempts_results(reading: Reading) -> Iterator[Element]:
    for key, key_type, size, kind in reading.columns(DATA):
        yield Element(
            f"data:{encode_key(key, key_type)}",
            key,
            "strata:Data",
            attributes=(("strata:type", kind), ("strata:bytes", size)),
        )
    found = reading.attempts("attempt, key, typename, nbytes", "outcome = 'memory'")
    for attempt, key, kind, size in found:
        attributes = (("strata:type", kind), ("strata:bytes", size))
        yield Element(f"result:{attempt}", key or "", "strata:Result", None, None, attributes)


def activities(reading: Reading, facts: Facts, *, detailed: bool) -> Iterator[Element]:
    """Yield the run, and its prefixes or in detail its attempts."""
    notes: tuple[tuple[str, Value], ...] = tuple(
        ("strata:note", note) for note in reading.job.notes
    )
    attributes = (("strata:runId", facts.run_id), *notes)
    yield Element(RUN, facts.name, "strata:Run", facts.start, facts.stop, attributes)
    if detailed:
        yield from _attempts(reading)
        return
    for row in reading.mappings(_PREFIXES):
        yield Element(
            f"prefix:{encode(row['prefix'])}",
            row["prefix"],
            "strata:Prefix",
            row["start"],
            row["stop"],
            (
                ("strata:tasks", row["n_tasks"]),
                ("strata:attempts", row["n"]),
                ("strata:failedAttempts", row["n_erred"]),
                ("strata:computeSeconds", row["seconds"]),
            ),
        )


def _attempts(reading: Reading) -> Iterator[Element]:
    for attempt, key, prefix, outcome, seconds, start, stop in reading.attempts(_ATTEMPTS):
        yield Element(
            f"attempt:{attempt}",
            key or "",
            "strata:Attempt",
            start,
            stop,
            (
                ("strata:prefix", prefix),
                ("strata:outcome", outcome),
                ("strata:computeSeconds", seconds),
            ),
        )
