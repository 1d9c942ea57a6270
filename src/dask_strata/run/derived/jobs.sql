-- Batch jobs: of recorded processes, of workers, and of dask-jobqueue's clusters.
-- depends on: _jobs_of_processes, _jobs_of_workers, _last_job_states, attempts, worker_samples
with of_processes as (
    select system, job, max(name) as name, max(queue) as queue, max(account) as account,
           max(nodes) as nodes, max(n_nodes) as n_nodes,
           max(time_limit_seconds) as time_limit_seconds
    from _jobs_of_processes group by system, job
), work as (
    select w.system, w.job, count(distinct (w.worker, w.start)) as n_workers,
           count(distinct a._key) as n_tasks, count(a.attempt) as n_attempts,
           sum(a.compute_seconds) as compute_seconds
    from _jobs_of_workers w left join attempts a on a.worker = w.worker
     and (w.start is null or a.stop is null or a.stop >= w.start)
     and (w.next_start is null or coalesce(a.start, a.stop) < w.next_start)
    group by w.system, w.job
), memory as (
    select system, job, max(bytes) as bytes from (
        -- The scheduler samples all workers at the same time.
        select w.system, w.job, s.time, sum(s.rss_bytes)::bigint as bytes
        from worker_samples s join _jobs_of_workers w on w.worker = s.worker
         and (w.start is null or s.time >= w.start) and (w.stop is null or s.time <= w.stop)
        where s.seen_by = 'scheduler' group by w.system, w.job, s.time
    ) group by system, job
)
select coalesce(s.system, p.system) as system, coalesce(s.job, p.job) as job,
       coalesce(s.name, p.name) as name, s.state, s.reason, s.exit_code, s.signal,
       coalesce(s.queue, p.queue) as queue, coalesce(s.account, p.account) as account,
       coalesce(s.nodes, p.nodes) as nodes, coalesce(s.n_nodes, p.n_nodes) as n_nodes,
       s.submitted, s.start, s.stop,
       case when s.submitted is not null then
           (epoch_ns(coalesce(s.start, s.stop, s.time)) - epoch_ns(s.submitted)) / 1e9
           end as queue_seconds,
       s.used_seconds, coalesce(s.time_limit_seconds, p.time_limit_seconds) as time_limit_seconds,
       s.memory_used_bytes, s.memory_limit_bytes, m.bytes as workers_rss_bytes, s.cpus,
       coalesce(w.n_workers, 0) as n_workers, coalesce(w.n_tasks, 0) as n_tasks,
       coalesce(w.n_attempts, 0) as n_attempts, w.compute_seconds, s.worker_name
from _last_job_states s full outer join of_processes p on p.system = s.system and p.job = s.job
left join work w on w.job = coalesce(s.job, p.job)
 and w.system is not distinct from coalesce(s.system, p.system)
left join memory m on m.job = coalesce(s.job, p.job)
 and m.system is not distinct from coalesce(s.system, p.system)
order by submitted nulls last, try_cast(coalesce(s.job, p.job) as bigint), job
