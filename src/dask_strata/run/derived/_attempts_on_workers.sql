-- The execution that each successful attempt matches: the last one of the key on the worker that
-- ended during the attempt, or within 1 s before or after.
-- Imported runs need it where the scheduler's row has the time of a transfer instead.
-- depends on: _scheduler_attempts, _worker_executions
-- by key: _scheduler_attempts, _worker_executions
with scheduler_side as (
    select number, _key, last_worker as worker, epoch_ns(start) as t0,
           epoch_ns(stop) + 1000000000 as t1
    from _scheduler_attempts where end_state = 'memory'
), worker_side as (
    select number, _key, worker, epoch_ns(stop) as t
    from _worker_executions where scheduled and end_state = 'memory'
)
select s.number, r.number as worker_execution
from scheduler_side s asof join worker_side r
  on r._key = s._key and r.worker = s.worker and s.t1 >= r.t
where r.t >= coalesce(s.t0, r.t) - 1000000000
