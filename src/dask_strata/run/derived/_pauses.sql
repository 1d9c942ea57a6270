-- Times in which Dask had paused a worker, by the scheduler's events and the worker's own samples;
-- a pause ends with the next status, with the worker's removal, or with the record.
-- depends on: _bounds, worker_events, worker_samples
with statuses as (
    select worker, time, seq, action = 'paused' as paused, action = 'remove' as removed
    from worker_events where action in ('paused', 'status', 'add', 'remove')
    union all by name
    select worker, time, seq, status = 'paused' as paused, null as removed
    from worker_samples where seen_by = 'worker' and status is not null
), known as (
    -- A worker that was removed may go on, and take samples.
    select worker, time, seq, paused and not coalesce(last_value(removed ignore nulls) over (
               partition by worker order by time, seq), false) as paused
    from statuses
), changes as (
    select * from known
    qualify paused is distinct from lag(paused) over (partition by worker order by time, seq)
), until_next as (
    select worker, paused, time as start,
           lead(time) over (partition by worker order by time, seq) as stop
    from changes
)
select worker, start, coalesce(stop, last) as stop, stop is not null as ended
from until_next cross join _bounds where paused
