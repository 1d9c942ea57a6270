-- Chunks of data: the worker, attempt, phases, bytes and state of each.
-- depends on: _chunk_phases, _chunk_reads, _numbered_chunks, _reported_exceptions, attempts,
-- executions
-- by key: _chunk_phases, _chunk_reads, _numbered_chunks, attempts, executions
-- order: start nulls last, uri, first
with executed as (
    select c.* exclude (first, last), coalesce(c.first, p.first) as first,
           coalesce(c.last, p.last) as last, a.worker, a.thread, a.outcome,
           coalesce(e.start, a.start) as start,
           coalesce(e.stop, a.stop) as stop, a.compute_seconds as seconds,
           case when c.n_of_task = 1 then a.nbytes end as nbytes,
           r.open_seconds, p.build_seconds, p.process_seconds, r.requests,
           -- The bytes of the thread belong to this chunk if the task has no other.
           coalesce(r.requested_bytes, case when c.n_of_task = 1
                    and a.library_bytes is null then a.read_bytes end) as read_bytes,
           case when r.requested_bytes is not null then 'library'
                when c.n_of_task = 1 and a.library_bytes is null
                     and a.read_bytes is not null then 'thread' end as bytes_from,
           coalesce(c.last, p.last) - coalesce(c.first, p.first) as events,
           c.of_runner and a.typename = 'NoneType' as skipped,
           coalesce(a.exception, k.exception, c.any_exception) as exception
    from _numbered_chunks c
    left join attempts a on a.attempt = c.attempt
    left join executions e on e.process = a._process and e.execution = a._execution
    left join _chunk_reads r on r.chunk = c.chunk
    left join _chunk_phases p on p.chunk = c.chunk
    left join _reported_exceptions k on k.process = a._process and k.execution = a._execution
)
select dataset, uri, tree, first, last, _key, key, key_type, attempt, n_attempts, worker, thread,
       start, stop, seconds, open_seconds, build_seconds, process_seconds,
       case when n_of_task = 1 and coalesce(open_seconds, build_seconds, process_seconds)
                 is not null
            -- Dask stops its clock some microseconds before the recorder's last measurement.
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
from executed
