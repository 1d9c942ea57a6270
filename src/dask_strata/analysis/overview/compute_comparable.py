"""How the values of a run that are compared with those of others are computed."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from pathlib import PurePath
from typing import TYPE_CHECKING

from dask_strata.analysis.critical_path.walk import CriticalPath
from dask_strata.analysis.overview.comparable import (
    Comparable,
    Inputs,
    PathPart,
    Place,
    PrefixValues,
    Sample,
    SizeSums,
)
from dask_strata.analysis.overview.tags import recorded_tags, tag_facts
from dask_strata.schema import LEFT_OUT

if TYPE_CHECKING:
    from dask_strata.run import Run

#: Most pairs of a prefix and a worker, and most parts of the path with their workers, that are
#: stored: those with the most time.
_MOST_PLACES = 2_000

#: Number of tasks whose worker and order are compared between runs.
_SAMPLED = 500


def compute_comparable(run: Run, path: CriticalPath) -> Comparable:
    """Return the values of a run that are compared.

    Parameters
    ----------
    run : Run
        The run.
    path : CriticalPath
        Its critical path.
    """
    return Comparable(
        facts=_facts(run),
        settings=_named(run, _SETTINGS),
        packages=_named(run, _PACKAGES),
        prefixes={row.pop("prefix"): PrefixValues(**row) for row in run.rows(_PREFIXES)},
        path=_parts(run, path),
        startup_seconds=_startup(run, path),
        lost_workers=run.rows("select count(*) as n from worker_ends where ended = 'unexpected'")[
            0
        ]["n"],
        places=tuple(Place(**row) for row in run.rows(_PLACES, _MOST_PLACES)),
        sizes=tuple(SizeSums(**row) for row in run.rows(_SIZES)),
        sample=_sample(run),
        inputs=_inputs(run),
    )


_PREFIXES = """
    with used as (
        select coalesce(prefix, '(unknown)') as prefix, count(compute_seconds) as attempts,
               sum(compute_seconds) as compute_seconds,
               sum(transfer_seconds) as transfer_seconds, sum(cpu_seconds) as cpu_seconds,
               sum(read_bytes)::double as read_bytes
        from attempts group by 1
    )
    select prefix, count(*) as tasks, coalesce(any_value(attempts), 0) as attempts,
           any_value(compute_seconds) as compute_seconds,
           any_value(transfer_seconds) as transfer_seconds, any_value(cpu_seconds) as cpu_seconds,
           any_value(read_bytes) as read_bytes
    from (select coalesce(prefix, '(unknown)') as prefix from tasks where not finished_before)
    left join used using (prefix) group by prefix order by prefix
"""

_SETTINGS = """
    select c.name, any_value(c.value) as value from config c join processes p using (process)
    where p.role = 'scheduler' and not starts_with(c.name, 'dask_strata')
    group by c.name order by c.name
"""

_PACKAGES = """
    select name, string_agg(distinct version, ', ' order by version) as value
    from (select name, version from packages union all
          select 'python' as name, python as version from processes where python is not null)
    where name not in ('dask-strata', 'dask_strata')
    group by name order by name
"""

#: Facts of processes that are the same in each run of a script on the same machine.
_OF_PROCESSES = """
    select coalesce(t.name, j.name) as name,
           string_agg(distinct j.value, ', ' order by j.value) as value
    from job j join processes p using (process)
    left join (values ('cpu.model', 'cpu-model'), ('cpu.logical-cores', 'cpu-cores'),
                      ('memory.total', 'memory-bytes'), ('os.kernel', 'kernel'),
                      ('os.distribution', 'distribution'), ('launcher', 'launcher'))
        t(own, name) on t.own = j.name
    where p.role in ('scheduler', 'worker')
      and (t.name is not null or starts_with(j.name, 'environment.')
           and not regexp_matches(j.name, '(_ID|ID|PID|PORT|ADDRESS|TMPDIR|NODELIST|HOSTFILE|PWD)$')
           and not regexp_matches(j.name, 'DASK_STRATA|(SLURM|PBS|SGE|LSB|OMPI|PMI|PMIX)_'))
    group by 1 order by 1
"""

_HOSTS = "select string_agg(distinct host, ', ' order by host) as hosts from workers"

#: A name that the setting `leave-out` gives a host: another one in each run.
_PSEUDONYM = re.compile(r"\bhost-[0-9a-f]{12}\b")

#: Workers, with the names by which they are the same in several runs.
_WORKERS = """
    select worker, any_value(host) as host,
           any_value(case when contains(name, '://') then null else name end) as name
    from workers group by worker
"""

_PLACES = f"""
    with named as ({_WORKERS})
    select coalesce(a.prefix, '(unknown)') as prefix, n.host, n.name as worker,
           count(*) as n, sum(a.compute_seconds) as seconds, sum(ln(a.compute_seconds)) as log_sum,
           sum(ln(a.compute_seconds) ** 2) as log_squares
    from attempts a join named n using (worker) where a.compute_seconds > 0
    group by 1, 2, 3 order by seconds desc, 1, 2, 3 limit ?
"""  # noqa: S608  no value of the record

_SIZES = """
    with inputs as (
        select e._key, sum(d.nbytes) as nbytes
        from (select distinct _key, _dependency from graph_edges) e
        join (select _key, max(nbytes) as nbytes from tasks group by _key) d
          on d._key = e._dependency
        group by e._key
    ), points as (
        select coalesce(a.prefix, '(unknown)') as prefix, ln(a.compute_seconds) as y,
               ln(1 + coalesce(i.nbytes, 0) + coalesce(a.read_bytes, 0)) as x
        from attempts a left join inputs i on i._key = a._key
        where a.compute_seconds > 0 and (i.nbytes is not null or a.read_bytes is not null)
    )
    select prefix, count(*) as n, sum(x) as x, sum(y) as y, sum(x * x) as xx, sum(x * y) as xy,
           sum(y * y) as yy
    from points group by prefix having count(*) > 2 order by prefix
"""

#: Tasks with the smallest hashes of their names: the key without the hashes that Dask puts in it,
#: and where several tasks have the same one, also the place among them by submission and priority.
_SAMPLE = """
    with named as (
        select _key, worker, started,
               regexp_replace(
                   key, '-?[0-9a-f]{32}|-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}', '', 'g'
               ) as plain
        from tasks where not finished_before and worker is not null and started is not null
    ), counted as (
        select *, count(*) over (partition by plain) as n from named
    ), placed as (
        select g._key, min(s.time) as time,
               arg_min(try_cast('[' || trim(g.priority, '()') || ']' as double[]), s.time) as place
        from graph_tasks g join submissions s using (submission)
        where g._key in (select _key from counted where n > 1) group by g._key
    ), known as (
        select worker, started, case when n = 1 then plain else plain || '#' || row_number() over (
                   partition by plain order by time, place, started, _key) end as id
        from counted left join placed using (_key)
    ), sampled as (
        select (md5_number_lower(id) >> 16)::bigint as id, worker, started
        from known order by 1, started limit ?
    )
    select id, dense_rank() over (order by worker) - 1 as worker,
           row_number() over (order by started, id) - 1 as place
    from sampled order by id
"""

_INPUTS = """
    with read as (
        select uri, max(nbytes) as size from task_inputs
        where coalesce(mode, 'read') in ('read', 'update') and uri is not null group by uri
    ), sizes as (
        select uri, max(file_bytes) as size from file_opens group by uri
    )
    select uri, s.size as size from read r left join sizes s using (uri) order by uri
"""


def _named(run: Run, query: str) -> dict[str, str | None]:
    return {row["name"]: _kept(row["value"]) for row in run.rows(query)}


def _kept(value: str | None) -> str | None:
    """Return the value of a fact; None if the setting `leave-out` removed it."""
    return None if value in (LEFT_OUT, f'"{LEFT_OUT}"') else value


def _facts(run: Run) -> dict[str, str | None]:
    script = {name: _kept(value) for name, value in run.script.items()}
    path, commit = script.get("path"), script.get("git_commit")
    dirty = script.get("git_dirty") == "true"
    hosts = run.rows(_HOSTS)[0]["hosts"]
    facts = {
        "name": run.manifest.name,
        "script": PurePath(path).name if path else None,
        "script-sha256": script.get("sha256"),
        "arguments": _arguments(script.get("argv")),
        "git-commit": f"{commit} with changes" if commit and dirty else commit,
        "git-branch": script.get("git_branch"),
        "hosts": None if _PSEUDONYM.search(hosts or "") else hosts,
        **_named(run, _OF_PROCESSES),
    }
    return {**facts, **tag_facts(recorded_tags(run))}


def _arguments(argv: str | None) -> str | None:
    """Return the arguments of a script on one line; None if they are not on record."""
    try:
        return None if argv is None else " ".join(map(str, json.loads(argv)[1:]))
    except (ValueError, TypeError):
        return None


def _parts(run: Run, path: CriticalPath) -> tuple[PathPart, ...]:
    workers = {row["worker"]: row for row in run.rows(_WORKERS)}
    sums: Counter[PathPart] = Counter()
    for segment in path.segments:
        place = workers.get(segment.worker, {})
        occupant = segment.occupant.prefix if segment.occupant is not None else None
        name = (segment.cause, segment.prefix, occupant, place.get("host"), place.get("name"))
        sums[PathPart(*name, nanoseconds=0)] += segment.stop - segment.start
    for part, _ in sums.most_common()[_MOST_PLACES:]:
        sums[replace(part, host=None, worker=None)] += sums.pop(part)
    return tuple(replace(part, nanoseconds=ns) for part, ns in sums.items())


def _startup(run: Run, path: CriticalPath) -> float | None:
    first: int | None = run.rows("select epoch_ns(first) as first from _bounds")[0]["first"]
    submitted = first_submission(run)
    if submitted is None and path.segments:  # an imported run
        submitted = path.segments[0].start
    return None if first is None or submitted is None else max(0, submitted - first) / 1e9


def first_submission(run: Run) -> int | None:
    """Return the time of the first submission, in ns; None if none is on record.

    Parameters
    ----------
    run : Run
        The run.
    """
    time: int | None = run.rows("select epoch_ns(min(time)) as time from submissions")[0]["time"]
    return time


def _sample(run: Run) -> Sample:
    rows = run.rows(_SAMPLE, _SAMPLED)
    columns = ("id", "worker", "place")
    return Sample(*(tuple(row[column] for row in rows) for column in columns))


def _inputs(run: Run) -> Inputs:
    rows = [(row["uri"].rstrip("/").rpartition("/")[2], row["size"]) for row in run.rows(_INPUTS)]
    if not rows:
        return Inputs()
    rows.sort(key=lambda row: (row[0], row[1] or 0))
    sizes = [size for _, size in rows if size is not None]
    text = "\n".join(f"{name}\t{size}" for name, size in rows)
    return Inputs(
        n=len(rows),
        nbytes=sum(sizes) if sizes else None,
        digest=sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16],
    )
