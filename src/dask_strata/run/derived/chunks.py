"""Chunks of data, and what tasks report from the inside, as SQL: see `derive`.

A chunk is named by a task's definition (a claim), or it is seen to be made into events. The
two may write the path of one file in different ways, so that names of files are compared.
"""

from __future__ import annotations

CHUNK_QUERIES: dict[str, str] = {
    "custom_metrics": """
        select a.attempt, r.key, r.key_type, r.name, r.kind, r.value, r.count
        from reports r
        left join attempts a on a._process = r.process and a._execution = r.execution
        where r.kind in ('section', 'counter', 'column')
    """,
    # What is claimed in steps has entries that only the open file knows.
    "_claimed_chunks": """
        select key, key_type, uri, parse_filename(uri) as file, any_value(dataset) as dataset,
               tree, case unit when 'entries' then first end as first,
               case unit when 'entries' then last end as last,
               bool_or(coalesce(extractor, '') like 'coffea.processor.%') as of_runner
        from claimed_inputs
        where (unit = 'entries' and first is not null) or (unit = 'steps' and tree is not null)
        group by key, key_type, uri, file, tree, unit, claimed_inputs.first, claimed_inputs.last
    """,
    "_seen_chunks": """
        select s.*, parse_filename(s.uri) as file, exists (
                   from _claimed_chunks c
                   where c.key = s.key and c.key_type = s.key_type
                     and (s.uri is null or c.file = parse_filename(s.uri))
                     and (c.first is null or s.first >= c.first and s.last <= c.last)
               ) as claimed
        from seen_chunks s
    """,
    # A key that was forgotten may be submitted again: that is another try, not a retry.
    "_chunk_tries": """
        with keys as (
            select distinct key, key_type from _claimed_chunks union
            select distinct key, key_type from _seen_chunks
        ), forgotten as (
            select key, key_type, seq from scheduler_transitions where finish_state = 'forgotten'
        ), lives as (
            select a.key, a.key_type, a.attempt, any_value(a.exception) as exception,
                   count(f.seq) as life
            from keys k join attempts a on a.key = k.key and a.key_type = k.key_type
            left join forgotten f on f.key = a.key and f.key_type = a.key_type and f.seq < a._seq
            group by a.key, a.key_type, a.attempt
        )
        select key, key_type, max(attempt) as attempt, count(*) as n_attempts,
               arg_max(exception, attempt) filter (exception is not null) as exception
        from lives group by key, key_type, life
    """,
    "_chunks": """
        with every as (
            select * from _claimed_chunks
            union all by name
            select key, key_type, uri, file, any_value(dataset) as dataset, tree, first, last,
                   false as of_runner
            from _seen_chunks where not claimed
            group by key, key_type, uri, file, tree, first, last
        )
        select e.*, t.attempt, coalesce(t.n_attempts, 0) as n_attempts,
               t.exception as any_exception, row_number() over () as chunk,
               count(*) over (partition by e.key, e.key_type, t.attempt) as n_of_task,
               count(*) over (partition by e.key, e.key_type, t.attempt, file) as n_of_file
        from every e left join _chunk_tries t on t.key = e.key and t.key_type = e.key_type
    """,
    "_chunk_reads": """
        select c.chunk, sum(r.requested_bytes) as requested_bytes,
               sum(r.requests) as requests, sum(r.open_seconds) as open_seconds
        from _chunks c join attempts a on a.attempt = c.attempt
        join library_reads r on r.process = a._process and r.execution = a._execution
         and (parse_filename(r.uri) = c.file or c.file is null)
        where c.n_of_file = 1 group by c.chunk
    """,
    "_chunk_phases": """
        select c.chunk, sum(s.build_seconds) as build_seconds,
               sum(s.process_seconds) as process_seconds,
               -- What was claimed in steps has the range that it was seen to have.
               case when count(distinct (s.first, s.last)) = 1 then any_value(s.first) end as first,
               case when count(distinct (s.first, s.last)) = 1 then any_value(s.last) end as last
        from _chunks c join attempts a on a.attempt = c.attempt
        join _seen_chunks s on s.process = a._process and s.execution = a._execution
         and (s.file = c.file or s.uri is null)
         and (c.first is null or s.first >= c.first and s.last <= c.last)
        group by c.chunk
    """,
    "_kept": """
        select process, execution, any_value(name) as exception
        from reports where kind = 'exception' group by process, execution
    """,
    # Files that coffea's Runner could not look into, and left out.
    "_lost_files": """
        with tries as (
            select c.dataset, c.uri, c.tree, c.key, a.* exclude (key), row_number() over (
                       partition by c.key, c.key_type, c.uri order by a.attempt desc) as nth
            from claimed_inputs c
            left join attempts a on a.key = c.key and a.key_type = c.key_type
            where c.extractor = 'coffea.processor.executor.FileMeta'
        )
        select distinct on (t.dataset, t.uri, t.tree) t.dataset, t.uri, t.tree, t.key,
               coalesce(t.exception, k.exception) as exception
        from tries t
        left join _kept k on k.process = t._process and k.execution = t._execution
        where nth = 1 and (t.typename = 'NoneType' or t.outcome is distinct from 'memory')
          and not exists (from _chunks c where c.uri = t.uri)
        order by t.dataset, t.uri, t.tree
    """,
    "chunks": """
        with ran as (
            select c.* exclude (first, last), coalesce(c.first, p.first) as first,
                   coalesce(c.last, p.last) as last, a.worker, a.thread, a.outcome,
                   coalesce(e.start, a.start) as start,
                   coalesce(e.stop, a.stop) as stop, a.compute_seconds as seconds,
                   case when c.n_of_task = 1 then a.nbytes end as nbytes,
                   r.open_seconds, p.build_seconds, p.process_seconds, r.requests,
                   -- The thread's own bytes are this chunk's if it is the only one.
                   coalesce(r.requested_bytes, case when c.n_of_task = 1
                            and a.library_bytes is null then a.read_bytes end) as read_bytes,
                   case when r.requested_bytes is not null then 'library'
                        when c.n_of_task = 1 and a.library_bytes is null
                             and a.read_bytes is not null then 'thread' end as bytes_from,
                   coalesce(c.last, p.last) - coalesce(c.first, p.first) as events,
                   c.of_runner and a.typename = 'NoneType' as skipped,
                   coalesce(a.exception, k.exception, c.any_exception) as exception
            from _chunks c
            left join attempts a on a.attempt = c.attempt
            left join executions e on e.process = a._process and e.execution = a._execution
            left join _chunk_reads r on r.chunk = c.chunk
            left join _chunk_phases p on p.chunk = c.chunk
            left join _kept k on k.process = a._process and k.execution = a._execution
        )
        select dataset, uri, tree, first, last, key, key_type, attempt, n_attempts, worker, thread,
               start, stop, seconds, open_seconds, build_seconds, process_seconds,
               case when n_of_task = 1 and coalesce(open_seconds, build_seconds, process_seconds)
                         is not null
                    -- Dask's clock stops some microseconds before ours.
                    then greatest(0, seconds - coalesce(open_seconds, 0)
                         - coalesce(build_seconds, 0) - coalesce(process_seconds, 0))
               end as other_seconds,
               read_bytes, bytes_from, requests, events,
               case when n_of_task = 1 then events / nullif(seconds, 0) end as events_per_second,
               case when n_of_task = 1 then read_bytes / nullif(seconds, 0) end as bytes_per_second,
               nbytes,
               case when attempt is null then 'lost'
                    when outcome = 'running' then 'running'
                    when outcome = 'erred' then 'failed'
                    when outcome <> 'memory' then 'lost'
                    when skipped then 'skipped'
                    when n_attempts > 1 then 'retried' else 'done' end as state,
               exception
        from ran order by start nulls last, uri, first
    """,
}
