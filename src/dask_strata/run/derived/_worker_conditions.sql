-- Intervals in which a worker could not go on, by condition: `paused worker` (Dask had paused it),
-- `spill` (it wrote results to disk or read them), `blocked event loop`. Times are in ns.
-- depends on: _bounds, _loop_blocks, spills, worker_events, worker_samples
with statuses as (
    select worker, time, seq, action = 'paused' as paused from worker_events
    where action in ('paused', 'status', 'add', 'remove')
    union all
    select worker, time, seq, status = 'paused' from worker_samples
    where seen_by = 'worker' and status is not null
), pauses as (
    select worker, paused, epoch_ns(time) as start,
           lead(epoch_ns(time)) over (partition by worker order by time, seq) as stop
    from statuses
)
select worker, 'paused worker' as condition, start, coalesce(stop, epoch_ns(last)) as stop
from pauses cross join _bounds where paused
union all
select worker, 'spill', epoch_ns(time) - (seconds * 1e9)::bigint, epoch_ns(time)
from spills where seconds is not null
union all
select worker, 'blocked event loop', start_ns, stop_ns from _loop_blocks where worker is not null
