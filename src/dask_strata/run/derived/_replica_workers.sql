-- Workers whose transitions or logs show which results they held.
-- depends on: _imported_workers, worker_log, worker_transitions
select distinct coalesce(p.address, s.worker) as worker
from (select worker from worker_transitions where (finish_state = 'memory') <> (start_state = 'memory')
      union select worker from worker_log where event = 'held-at-start') s
left join _imported_workers p on p.name = s.worker
where s.worker is not null
