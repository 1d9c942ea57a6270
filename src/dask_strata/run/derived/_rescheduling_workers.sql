-- The worker that asked for a task to be rescheduled; the scheduler's transition does not name it.
-- depends on: _scheduler_attempts, worker_transitions
-- by key: _scheduler_attempts, worker_transitions
select s.number, any_value(t.worker) as worker
from _scheduler_attempts s join worker_transitions t
  on t._key = s._key and t.stimulus_id = s.stimulus_id
where s.last_worker is null and s.stimulus_id like 'reschedule-%'
group by s.number
