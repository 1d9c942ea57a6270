-- Each period that a worker was connected to the scheduler, with the record of its process.
-- depends on: processes, worker_events
with arrivals as (
    select worker, name, time as start,
           case when file is not null
                then regexp_extract(worker, '://\[?([^/]*?)\]?:[0-9]+$', 1) end as host,
           lead(time) over (partition by worker order by time, seq) as next_start
    from worker_events where action in ('add', 'present') and worker is not null
), connections as (
    select c.worker, c.name, c.host, c.start, c.next_start, min(e.time) as stop,
           arg_min(e.reason, e.time) as end_reason
    from arrivals c left join worker_events e
      on e.worker = c.worker and e.action = 'remove' and e.time >= c.start
     and (c.next_start is null or e.time <= c.next_start)
    group by all
), recorded_workers as (
    select p.process, p.address, p.name, p.host, p.nthreads, p.memory_limit_bytes,
           p.start, p.stop,
           coalesce(arg_min(s.start, abs(epoch_ns(s.start) - epoch_ns(p.start))),
                    min(s.start)) as connection_start
    from processes p left join connections s on s.worker = p.address
    where p.role = 'worker' group by all
)
select coalesce(s.worker, k.address) as worker, coalesce(s.name, k.name) as name,
       k.process, coalesce(k.host, s.host) as host, k.nthreads,
       k.memory_limit_bytes, coalesce(s.start, k.start) as start, coalesce(s.stop, k.stop) as stop,
       s.end_reason, s.next_start
from connections s full outer join recorded_workers k
  on k.address = s.worker and k.connection_start = s.start
