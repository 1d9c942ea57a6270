-- Intervals in which a task was in the scheduler's states queued or no-worker, in ns.
-- depends on: _transitions
-- by key: _transitions
select _key, epoch_ns(time) as start, epoch_ns(next_time) as stop,
       finish_state = 'no-worker' as unplaceable
from _transitions where finish_state in ('queued', 'no-worker') and next_time is not null
