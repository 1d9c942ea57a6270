-- The worker that work stealing moved an attempt to; the last one, if it was stolen repeatedly.
-- depends on: _scheduler_attempts, steals
-- by key: _scheduler_attempts, steals
select s.number, last(t.destination order by t.time) as worker
from _scheduler_attempts s join steals t
  on t._key = s._key and t.outcome = 'confirm'
 and t.time >= s.start and (s.stop is null or t.time <= s.stop)
group by s.number
