-- Bytes in Darshan's logs, by log and by the evidence for their task or process. The sums of a
-- log's rows are its own counters: those of system calls (POSIX) and those of C's FILE* (STDIO).
-- A log without counters has the sums of its traces.
-- depends on: attempts, darshan_counters, darshan_logs, executions, io_segments, processes
with of_dask as (
    select * from processes where role in ('worker', 'scheduler', 'client', 'nanny', 'record')
), run as (
    select coalesce((select bool_or(pid is not null) from of_dask), false) as has_pids,
           exists (from attempts where thread is not null)
               or exists (from executions where thread is not null) as has_threads
), hosts as (
    select lower(split_part(host, '.', 1)) as name from of_dask where host is not null
    union select lower(split_part(host, '.', 1)) from darshan_logs
    where tied_by is not null and host is not null
), span as (
    select min(epoch_ns(t)) as first, max(epoch_ns(t)) as last from (
        select start as t from of_dask union all select stop from of_dask
        union all select start from attempts union all select stop from attempts)
), traced as (
    select log, attributed_by, count(*) as n_operations,
           coalesce(sum(length_bytes) filter (operation = 'read'), 0) as read_bytes,
           coalesce(sum(length_bytes) filter (operation = 'write'), 0) as write_bytes,
           sum(seconds) as seconds, count(thread) as n_threads
    from io_segments where module = 'DXT_POSIX' group by log, attributed_by
), traced_in_log as (
    select log, sum(read_bytes) as read_bytes, sum(write_bytes) as write_bytes,
           sum(n_threads) as n_threads
    from traced group by log
), counted as (
    select log,
           coalesce(sum(value) filter (counter = 'POSIX_BYTES_READ'), 0)::bigint as read_bytes,
           coalesce(sum(value) filter (counter = 'POSIX_BYTES_WRITTEN'), 0)::bigint as write_bytes,
           coalesce(sum(value) filter (counter = 'STDIO_BYTES_READ'), 0)::bigint
               as buffered_read_bytes,
           coalesce(sum(value) filter (counter = 'STDIO_BYTES_WRITTEN'), 0)::bigint
               as buffered_write_bytes
    from darshan_counters group by log
), untraced as (
    select c.log, 'untraced' as attributed_by,
           greatest(0, c.read_bytes - coalesce(t.read_bytes, 0)) + c.buffered_read_bytes
               as read_bytes,
           greatest(0, c.write_bytes - coalesce(t.write_bytes, 0)) + c.buffered_write_bytes
               as write_bytes
    from counted c left join traced_in_log t on t.log = c.log
), parts as (
    select * exclude (n_threads) from traced union all by name
    from untraced where read_bytes + write_bytes > 0 union all by name
    select log from darshan_logs
    where log not in (select log from traced_in_log)
      and log not in (select log from untraced where read_bytes + write_bytes > 0)
), judged as (
    select l.*, h.name is not null as is_of_host,
           case when l.tied_by is not null then null
                when l.nprocs > 1 then 'one log of several processes (MPI)'
                when least(epoch_ns(l.stop), s.last) < greatest(epoch_ns(l.start), s.first)
                    - 5000000000 then 'from another time'
                when r.has_pids and l.pid is not null then 'no process of the run has its pid'
                else concat(
                    case when l.pid is null then 'the log has no pid'
                         else 'the run has no pids' end,
                    case when coalesce(t.n_threads, 0) = 0 then ', the log has no threads'
                         when r.has_threads then ', no worker has its threads'
                         else ', its tasks no threads, and it was not matched by the times of '
                             || 'its operations' end)
           end as reason
    from darshan_logs l cross join run r cross join span s
    left join traced_in_log t on t.log = l.log
    left join hosts h on h.name = lower(split_part(l.host, '.', 1))
)
select l.log, coalesce(l.host, p.host) as host, l.program, l.process, l.worker,
       case when d.attributed_by in ('thread', 'alone') then 'task'
            when l.tied_by is not null then 'process'
            when l.is_of_host and l.reason <> 'from another time' then 'host' end as tied_to,
       l.certainty, d.attributed_by,
       case when d.attributed_by = 'recorder' then 'dask-strata''s own'
            when l.tied_by is null then l.reason
            when d.attributed_by = 'ambiguous' then 'several tasks ran'
            when d.attributed_by = 'elsewhere' then 'by threads that run no tasks'
            when d.attributed_by = 'outside' then 'outside any task'
            when d.attributed_by = 'untraced' then 'counted, but not traced' end as reason,
       coalesce(d.n_operations, 0)::bigint as n_operations,
       coalesce(d.read_bytes, 0)::bigint as read_bytes,
       coalesce(d.write_bytes, 0)::bigint as write_bytes, d.seconds
from parts d join judged l on l.log = d.log
left join (select process, any_value(host) as host from processes group by process) p
  on p.process = l.process
order by read_bytes + write_bytes desc, l.log, d.attributed_by
