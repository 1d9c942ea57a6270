-- The worker that received an attempt, by its own transitions, where the scheduler names none.
-- The worker's transition must be within 1 s of the attempt.
-- depends on: _scheduler_attempts, worker_transitions
-- by key: _scheduler_attempts, worker_transitions
select s.number, arg_min(t.worker, abs(epoch_ns(t.time) - epoch_ns(s.start))) as worker
from _scheduler_attempts s join worker_transitions t
  on t._key = s._key and t.stimulus_id like 'compute-task%'
where s.last_worker is null and s.first_worker is null and s.start is not null
  and (s.stop is null or epoch_ns(t.time) <= epoch_ns(s.stop) + 1000000000)
  and epoch_ns(t.time) >= epoch_ns(s.start) - 1000000000
group by s.number
