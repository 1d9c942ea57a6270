-- Workers, one row for each connection to the scheduler.
-- depends on: _worker_connections, attempts, imports, transfers
with all_workers as (
    select * from _worker_connections
    union all by name
    -- Imported workers that no event of a worker declares.
    select worker, regexp_extract(worker, '://\[?([^/]*?)\]?:[0-9]+$', 1) as host
    from (select worker from attempts union select source from transfers
          union select destination from transfers)
    where worker is not null and exists (from imports where kind is null)
      and worker not in (select worker from _worker_connections where worker is not null)
), usage as (
    select w.worker, w.start, count(*) as n_attempts, sum(a.compute_seconds) as compute_seconds
    from attempts a join all_workers w on w.worker = a.worker
     and (w.start is null or a.stop is null or a.stop >= w.start)
     and (w.next_start is null or coalesce(a.start, a.stop) < w.next_start)
    group by w.worker, w.start
)
select w.worker, w.name, w.process, w.host, w.nthreads, w.memory_limit_bytes,
       w.start, w.stop, w.end_reason, coalesce(u.n_attempts, 0) as n_attempts,
       u.compute_seconds
from all_workers w left join usage u
  on u.worker = w.worker and u.start is not distinct from w.start
order by w.start, w.worker
