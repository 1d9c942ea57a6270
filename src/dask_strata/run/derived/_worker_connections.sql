-- Each period that a worker was connected to the scheduler, with the record of its process.
-- depends on: processes, worker_events
with arrivals as (
    -- The scheduler's row has the process id and, in early versions, the limit only in its text.
    select worker, name, nthreads, time as start,
           coalesce(memory_limit_bytes, nullif(try_cast(
               regexp_extract(reason, ', ([0-9]+) bytes', 1) as bigint), 0)) as memory_limit_bytes,
           try_cast(regexp_extract(reason, 'pid ([0-9]+)$', 1) as bigint) as pid,
           case when file is not null
                then regexp_extract(worker, '://\[?([^/]*?)\]?:[0-9]+$', 1) end as host,
           lead(time) over (partition by worker order by time, seq) as next_start
    from worker_events where action in ('add', 'present') and worker is not null
), connections as (
    select c.worker, c.name, c.nthreads, c.memory_limit_bytes, c.pid, c.host, c.start,
           c.next_start, min(e.time) as stop, arg_min(e.reason, e.time) as end_reason,
           arg_min(e.stimulus_id, e.time) as end_stimulus_id
    from arrivals c left join worker_events e
      on e.worker = c.worker and e.action = 'remove' and e.time >= c.start
     and (c.next_start is null or e.time <= c.next_start)
    group by all
), recorded_workers as (
    select p.process, p.address, p.name, p.host, p.pid, p.nthreads, p.memory_limit_bytes,
           p.start, p.stop, p.exit_reason,
           coalesce(arg_min(s.start, abs(epoch_ns(s.start) - epoch_ns(p.start))),
                    min(s.start)) as connection_start
    from processes p left join connections s on s.worker = p.address
    where p.role = 'worker' group by all
)
select coalesce(s.worker, k.address) as worker, coalesce(s.name, k.name) as name,
       k.process, coalesce(k.host, s.host) as host, coalesce(k.nthreads, s.nthreads) as nthreads,
       coalesce(k.memory_limit_bytes, s.memory_limit_bytes) as memory_limit_bytes,
       coalesce(s.pid, k.pid) as pid, coalesce(s.start, k.start) as start,
       coalesce(s.stop, k.stop) as stop, s.stop as removed, s.end_reason, s.end_stimulus_id,
       s.next_start, k.stop as process_stop, k.exit_reason
from connections s full outer join recorded_workers k
  on k.address = s.worker and k.connection_start = s.start
