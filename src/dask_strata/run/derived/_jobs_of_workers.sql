-- Batch job of each connection of a worker: from the variables of its process, or else from the name
-- that dask-jobqueue gave to it. A job with several workers appends a number to the name.
-- depends on: _jobs_of_processes, _last_job_states, _worker_connections
select w.worker, w.start, w.stop, w.next_start, coalesce(p.job, n.job) as job,
       case when p.job is null then n.system else p.system end as system
from _worker_connections w
left join _jobs_of_processes p on p.process = w.process
left join _last_job_states n on p.job is null
  and (n.worker_name = w.name or regexp_extract(w.name, '^(.+)-[0-9]+$', 1) = n.worker_name)
where coalesce(p.job, n.job) is not null
