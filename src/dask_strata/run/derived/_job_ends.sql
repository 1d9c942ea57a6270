-- Connections of workers that the end of their batch job explains: they ended up to two minutes
-- before it, because batch systems send SIGTERM some time before they end a job.
-- depends on: _jobs_of_workers, _last_job_states
select w.worker, w.stop, any_value(s.job) as job, any_value(s.state) as job_state
from _jobs_of_workers w join _last_job_states s on s.system = w.system and s.job = w.job
where s.state in ('TIMEOUT', 'DEADLINE', 'OUT_OF_MEMORY', 'CANCELLED', 'PREEMPTED', 'NODE_FAIL')
  and epoch_ns(w.stop) >= epoch_ns(s.stop) - 120000000000
group by w.worker, w.stop
