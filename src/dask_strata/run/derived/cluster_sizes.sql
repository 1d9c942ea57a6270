-- Sizes of the cluster: each time at which a worker was added, removed, paused or resumed.
-- depends on: _pauses, workers
with changes as (
    select start as time, 1 as workers, 0 as paused, nthreads as threads,
           (nthreads is null)::int as unknown
    from workers where start is not null
    union all by name
    select stop as time, -1 as workers, 0 as paused, -nthreads as threads,
           -(nthreads is null)::int as unknown
    from workers where start is not null and end_reason is not null
    union all by name
    select start as time, 0 as workers, 1 as paused, 0 as threads, 0 as unknown
    from _pauses
    union all by name
    select stop as time, 0 as workers, -1 as paused, 0 as threads, 0 as unknown
    from _pauses where ended
), at_times as (
    select time, sum(workers) as workers, sum(paused) as paused,
           coalesce(sum(threads), 0) as threads, sum(unknown) as unknown
    from changes group by time
), sizes as (
    select time, sum(workers) over w as workers, sum(paused) over w as paused,
           sum(threads) over w as threads, sum(unknown) over w as unknown
    from at_times window w as (order by time)
)
select time as start, lead(time) over (order by time) as stop, workers::bigint as n_workers,
       paused::bigint as n_paused,
       case when unknown = 0 then threads::bigint end as n_threads
from sizes order by start
