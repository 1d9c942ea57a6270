-- Executions that only transitions of workers record: those of keys without a row of the
-- scheduler, and all executions of imported runs. `scheduled`: the scheduler has rows of the key.
-- depends on: _imported_workers, scheduler_transitions, worker_transitions
-- by key: scheduler_transitions, worker_transitions
with recorded as (
    select w.* replace (coalesce(p.address, w.worker) as worker), k._key is not null as scheduled
    from worker_transitions w left join _imported_workers p on p.name = w.worker
    left join (select distinct _key from scheduler_transitions) k on k._key = w._key
    where w.file is not null or k._key is null
), steps as (
    select *, lead(time) over attempt as stop, lead(finish_state) over attempt as end_state
    from recorded
    where (finish_state = 'executing' and start_state <> 'long-running')
       or (start_state in ('executing', 'long-running')
           and finish_state not in ('executing', 'long-running'))
    window attempt as (partition by _key, worker order by time, seq)
)
select row_number() over (order by time, worker, key) as number, worker, _key, key, key_type,
       scheduled, time as start, stop, end_state,
       (epoch_ns(stop) - epoch_ns(time)) / 1e9 as seconds
from steps where finish_state = 'executing'
