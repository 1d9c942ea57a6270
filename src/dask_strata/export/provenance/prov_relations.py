"""The relations between the entities, activities and agents of a run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from dask_strata.export.provenance.facts import Facts
from dask_strata.export.provenance.identifiers import encode, encode_key
from dask_strata.export.provenance.prov_document import Relation
from dask_strata.export.provenance.prov_elements import CLIENTS, RUN, software_id
from dask_strata.export.provenance.reading import Reading

_WITH_RESULTS = """
    made as (select distinct prefix from attempts where outcome = 'memory' union
             select distinct prefix from tasks
             where n_attempts = 0 and (state = 'memory' or finished_before))
"""

#: Prefixes whose tasks had attempts, with those whose results they depend on.
DEPENDENCIES = f"""
    with prefixes as (select _key, min(prefix) as prefix, max(n_attempts) as n
                      from tasks where prefix is not null group by _key),
    edges as (select distinct t.prefix as prefix, d.prefix as dependency
              from (select distinct _key, _dependency from graph_edges) e
              join prefixes t on t._key = e._key and t.n > 0
              join prefixes d on d._key = e._dependency),
    {_WITH_RESULTS}
    select e.prefix, e.dependency, e.prefix in (from made) as made
    from edges e where e.dependency in (from made) order by e.prefix, e.dependency
"""  # noqa: S608  a part of this module

#: Uses of files by prefixes.
FILE_USES = f"""
    with uses as (
        select t.prefix, i.uri, bool_or(i.mode <> 'write') as read,
               bool_or(i.mode <> 'read') as written
        from task_inputs i
        join (select _key, min(prefix) as prefix from attempts group by _key) t using (_key)
        where i.uri is not null and t.prefix is not null group by t.prefix, i.uri
    ), {_WITH_RESULTS}
    select prefix, uri, read, written, prefix in (from made) as made
    from uses order by prefix, uri
"""  # noqa: S608  a part of this module

#: Attempts with a result: of keys with one of them, and of keys that were computed again.
_MADE = """
    made as (select _key, attempt, stop from attempts where outcome = 'memory'),
    by_key as (select _key, count(*) as n, min(attempt) as attempt, min(stop) as stop
               from made group by _key),
    again as (from made where _key in (select _key from by_key where n > 1)),
    uses as (select a.attempt, a.start, a.outcome = 'memory' as made, e._dependency
             from attempts a
             join (select distinct _key, _dependency from graph_edges) e using (_key))
"""

#: The attempt whose result an attempt used. Of several, the last one that ended before it began;
#: the join by time has these only, as it is slow on many rows.
RESULT_USES = f"""
    with {_MADE}
    select attempt, used, made from (
        select u.attempt, b.attempt as used, u.made
        from uses u join by_key b on b._key = u._dependency and b.n = 1
        union all
        select u.attempt, m.attempt as used, u.made
        from (from uses where _dependency in (select _key from again)) u
        asof join again m on m._key = u._dependency and m.stop <= u.start)
    order by attempt, used
"""  # noqa: S608  a part of this module

#: Uses of results of which no attempt is on record, and that are not data.
UNKNOWN_USES = f"""
    with {_MADE}
    select count(*) as n from uses u left join by_key b on b._key = u._dependency
    where (b.n is null or b.n > 1 and not coalesce(b.stop <= u.start, false))
      and u._dependency not in (
        select _key from tasks where n_attempts = 0 and (state = 'memory' or finished_before))
"""  # noqa: S608  a part of this module

_DATA_USES = """
    with data as (
        select _key, min(key) as key, min(key_type) as key_type from tasks
        where n_attempts = 0 and (state = 'memory' or finished_before) group by _key)
    select a.attempt, d.key, d.key_type, a.outcome = 'memory' as made
    from attempts a join (select distinct _key, _dependency from graph_edges) e using (_key)
    join data d on d._key = e._dependency order by a.attempt, d.key, d.key_type
"""

#: Uses of files by attempts. Attempts at a task whose definition names a file use it, if none
#: was seen to open it.
ATTEMPTS_FILES = """
    with seen as (
        select attempt, uri, mode, _key from task_inputs where kind = 'seen'
    ), claimed as (
        select a.attempt, c.uri, c.mode, c._key
        from (select distinct _key, uri, mode from task_inputs where kind = 'claimed') c
        join attempts a using (_key)
        where not exists (from seen s where s._key = c._key and s.uri = c.uri)
    )
    select u.attempt, u.uri, bool_or(u.mode <> 'write') as read,
           bool_or(u.mode <> 'read') as written, min(a.outcome) = 'memory' as made
    from (select attempt, uri, mode from seen union all select attempt, uri, mode from claimed) u
    join attempts a using (attempt)
    where u.uri is not null group by u.attempt, u.uri order by u.attempt, u.uri
"""

#: Files that prefixes wrote, with the results and the files that these prefixes used.
_WRITTEN_OF_RESULTS = f"""
    select distinct f.uri, d.dependency from ({FILE_USES}) f join ({DEPENDENCIES}) d using (prefix)
    where f.written order by f.uri, d.dependency
"""  # noqa: S608  parts of this module
_WRITTEN_OF_FILES = f"""
    with uses as ({FILE_USES})
    select distinct w.uri, r.uri as used from uses w join uses r using (prefix)
    where w.written and r.read and w.uri <> r.uri order by w.uri, r.uri
"""  # noqa: S608  parts of this module

#: The same of attempts.
_ATTEMPTS_WRITTEN_OF_RESULTS = f"""
    select distinct f.uri, u.used from ({ATTEMPTS_FILES}) f join ({RESULT_USES}) u using (attempt)
    where f.written order by f.uri, u.used
"""  # noqa: S608  parts of this module
_ATTEMPTS_WRITTEN_OF_FILES = f"""
    with uses as ({ATTEMPTS_FILES})
    select distinct w.uri, r.uri as used from uses w join uses r using (attempt)
    where w.written and r.read and w.uri <> r.uri order by w.uri, r.uri
"""  # noqa: S608  parts of this module

_PREFIXES_WORKERS = """
    select distinct prefix, worker from attempts
    where prefix is not null and worker is not null order by prefix, worker
"""

_WORKERS_PROCESSES = """
    select distinct worker, process from workers
    where worker is not null and process is not null order by worker, process
"""

_CLIENTS_PROCESSES = """
    select distinct address, process from processes
    where role = 'client' and address in (select client from clients union
                                          select client from submissions)
    order by address, process
"""


def used(reading: Reading, *, detailed: bool) -> Iterator[Relation]:
    """Yield the use of entities by activities."""
    if detailed:
        for attempt, result, _ in reading.columns(RESULT_USES):
            yield Relation(f"attempt:{attempt}", f"result:{result}")
        for attempt, key, key_type, _ in reading.columns(_DATA_USES):
            yield Relation(f"attempt:{attempt}", f"data:{encode_key(key, key_type)}")
        for attempt, uri, read, _, _ in reading.columns(ATTEMPTS_FILES):
            if read:
                yield Relation(f"attempt:{attempt}", f"file:{encode(uri)}")
        return
    for prefix, dependency, _ in reading.columns(DEPENDENCIES):
        yield Relation(f"prefix:{encode(prefix)}", f"results:{encode(dependency)}")
    for prefix, uri, read, _, _ in reading.columns(FILE_USES):
        if read:
            yield Relation(f"prefix:{encode(prefix)}", f"file:{encode(uri)}")


def generated(reading: Reading, *, detailed: bool) -> Iterator[Relation]:
    """Yield the generation of entities by activities."""
    if detailed:
        for (attempt,) in reading.attempts("attempt", "outcome = 'memory'"):
            yield Relation(f"result:{attempt}", f"attempt:{attempt}")
        for attempt, uri, _, written, _ in reading.columns(ATTEMPTS_FILES):
            if written:
                yield Relation(f"file:{encode(uri)}", f"attempt:{attempt}")
        return
    query = "select distinct prefix from attempts where outcome = 'memory' and prefix is not null"
    for (prefix,) in reading.columns(f"{query} order by prefix"):
        yield Relation(f"results:{encode(prefix)}", f"prefix:{encode(prefix)}")
    for prefix, uri, _, written, _ in reading.columns(FILE_USES):
        if written:
            yield Relation(f"file:{encode(uri)}", f"prefix:{encode(prefix)}")


def derived(reading: Reading, *, detailed: bool) -> Iterator[Relation]:
    """Yield the derivation of results and files from results and files."""
    yield from _files_derived(reading, detailed=detailed)
    if detailed:
        for attempt, result, made in reading.columns(RESULT_USES):
            if made:
                yield Relation(f"result:{attempt}", f"result:{result}")
        for attempt, key, key_type, made in reading.columns(_DATA_USES):
            if made:
                yield Relation(f"result:{attempt}", f"data:{encode_key(key, key_type)}")
        for attempt, uri, read, _, made in reading.columns(ATTEMPTS_FILES):
            if read and made:
                yield Relation(f"result:{attempt}", f"file:{encode(uri)}")
        return
    for prefix, dependency, made in reading.columns(DEPENDENCIES):
        if made and prefix != dependency:  # no entity is derived from itself
            yield Relation(f"results:{encode(prefix)}", f"results:{encode(dependency)}")
    for prefix, uri, read, _, made in reading.columns(FILE_USES):
        if read and made:
            yield Relation(f"results:{encode(prefix)}", f"file:{encode(uri)}")


def _files_derived(reading: Reading, *, detailed: bool) -> Iterator[Relation]:
    """Yield the derivation of files from what the activities that wrote them used."""
    of_results = _ATTEMPTS_WRITTEN_OF_RESULTS if detailed else _WRITTEN_OF_RESULTS
    for uri, used_result in reading.columns(of_results):
        result = f"result:{used_result}" if detailed else f"results:{encode(used_result)}"
        yield Relation(f"file:{encode(uri)}", result)
    for uri, used_file in reading.columns(
        _ATTEMPTS_WRITTEN_OF_FILES if detailed else _WRITTEN_OF_FILES
    ):
        yield Relation(f"file:{encode(uri)}", f"file:{encode(used_file)}")


def associated(reading: Reading, facts: Facts, *, detailed: bool) -> Iterator[Relation]:
    """Yield the association of activities with agents."""
    return chain(_with_run(reading, facts), _with_workers(reading, detailed=detailed))


def _with_run(reading: Reading, facts: Facts) -> Iterator[Relation]:
    """Yield the association of the run with all but workers, each with a script as its plan.

    Either all or none have a plan: readers of PROV-O mix associations of both kinds.
    """
    plans = {script.process: f"script:{encode(script.process)}" for script in facts.scripts}
    first = next(iter(plans.values()), None)
    of_users = {facts.users[name]: plan for name, plan in plans.items() if name in facts.users}
    of_clients = {
        address: plans[process]
        for address, process in reading.columns(_CLIENTS_PROCESSES)
        if process in plans
    }
    for user in facts.user_names:
        yield Relation(RUN, f"user:{encode(user)}", of_users.get(user, first))
    for name, version in facts.software:
        yield Relation(RUN, software_id(name, version), first)
    for (client,) in reading.columns(CLIENTS):
        yield Relation(RUN, f"client:{encode(client)}", of_clients.get(client, first))


def _with_workers(reading: Reading, *, detailed: bool) -> Iterator[Relation]:
    if detailed:
        for attempt, worker in reading.attempts("attempt, worker", "worker is not null"):
            yield Relation(f"attempt:{attempt}", f"worker:{encode(worker)}")
        return
    for prefix, worker in reading.columns(_PREFIXES_WORKERS):
        yield Relation(f"prefix:{encode(prefix)}", f"worker:{encode(worker)}")


def delegated(reading: Reading, facts: Facts) -> Iterator[Relation]:
    """Yield the users on whose behalf workers and clients acted."""
    for kind, query in (("client", _CLIENTS_PROCESSES), ("worker", _WORKERS_PROCESSES)):
        pairs = dict.fromkeys(
            (address, facts.users[process])
            for address, process in reading.columns(query)
            if process in facts.users
        )
        for address, user in pairs:
            yield Relation(f"{kind}:{encode(address)}", f"user:{encode(user)}")


def started(reading: Reading, *, detailed: bool) -> Iterator[Relation]:
    """Yield the prefixes that the run started."""
    if detailed:
        return
    query = "select distinct prefix from attempts where prefix is not null order by prefix"
    for (prefix,) in reading.columns(query):
        yield Relation(f"prefix:{encode(prefix)}", RUN)
