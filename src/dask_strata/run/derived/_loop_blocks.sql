-- Blocks of the event loops of scheduler (worker is null) and workers, which do not overlap in a
-- process. Of processes of older versions, which recorded the delay of an open callback in each
-- sample: the union of these delays.
-- depends on: loop_blocks, processes, scheduler_samples, worker_samples
with older as (
    select process from processes where role in ('scheduler', 'worker')
      and process not in (select process from loop_blocks where process is not null)
), delays as (
    select process, null::varchar as worker, epoch_ns(time) as b, loop_lag_seconds as seconds
    from scheduler_samples where loop_lag_seconds >= 0.1
    union all
    select process, worker::varchar, epoch_ns(time), loop_lag_seconds
    from worker_samples where loop_lag_seconds >= 0.1 and seen_by = 'worker'
), spans as (
    select process, worker, b - (seconds * 1e9)::bigint as a, b from delays semi join older using (process)
), cut as (
    select process, worker, greatest(a, coalesce(max(b) over (
               partition by process order by a, b
               rows between unbounded preceding and 1 preceding), a)) as a, b
    from spans
)
select process, worker, a as start_ns, b as stop_ns, null::double as frozen_seconds,
       null::double as cpu_seconds from cut where b > a
union all
select process, worker::varchar, epoch_ns(start), epoch_ns(stop), frozen_seconds, cpu_seconds
from loop_blocks
order by start_ns
