-- First and last moment of the run, and the seconds between them. The command `dask-strata record`
-- notes the exit status later, after the end of the script.
-- depends on: processes, scheduler_samples, scheduler_transitions, transfer_ends,
-- worker_transitions
with moments as (
    select time from scheduler_transitions union all by name
    select time from scheduler_samples union all by name
    select time from worker_transitions where file is not null union all by name
    select time from transfer_ends where file is not null union all by name
    select start as time from processes
    where role not in ('imported', 'record') and start is not null
    union all by name
    select stop as time from processes where role = 'scheduler' and stop is not null
)
select min(time) as first, max(time) as last,
       (max(epoch_ns(time)) - min(epoch_ns(time))) / 1e9 as seconds
from moments
