-- Workers that should have been there and never registered with the scheduler.
-- depends on: _jobs_of_workers, _last_job_states, _worker_connections, processes, worker_events
with refused as (
    select e.time, e.worker, e.name, 'refused' as cause, e.reason
    from worker_events e where e.action = 'refused'
), started as (
    -- A nanny that is asked to close ends a process that starts: an exit alone is no failure.
    select e.process, nullif(p.name, 'None') as name, p.host, max(e.worker) as worker,
           max(try_cast(regexp_extract(e.reason, '^pid ([0-9]+)', 1) as bigint))
               filter (e.action = 'process-start') as pid,
           arg_max(e.time, e.seq) filter (e.action = 'start-failed') as time,
           arg_max(e.reason, e.seq) filter (e.action = 'start-failed') as reason
    from worker_events e join processes p on p.process = e.process and p.role = 'nanny'
    where e.action in ('process-start', 'process-exit', 'start-failed')
    group by e.process, p.name, p.host
), failed as (
    select s.time, s.worker, s.name, 'start failed' as cause, s.reason
    from started s
    -- The nanny has the address of a worker that has registered, unless that ended at once.
    where s.worker is null and s.reason is not null
      and not exists (from _worker_connections c where c.pid = s.pid
                      and (c.host = s.host or c.name = s.name))
      and not exists (from refused r where r.name = s.name)
), requested as (
    select min(e.time) as time, e.name from worker_events e
    where e.action = 'requested'
      and not exists (from _worker_connections c where c.name = e.name)
      and not exists (from refused r where r.name = e.name)
      and not exists (from failed f where f.name = e.name)
    group by e.name
), idle_jobs as (
    select * from _last_job_states s
    where not exists (from _jobs_of_workers w where w.system = s.system and w.job = s.job)
      and s.worker_name is not null
), waited as (
    select coalesce(r.time, j.submitted) as time, coalesce(r.name, j.worker_name) as name, j.system,
           j.job, case when j.job is null then 'requested' when j.start is null
                       and coalesce(j.ended, false) then 'job never started'
                       when j.start is null then 'job pending'
                       when j.ended then 'job ended' else 'requested' end as cause,
           case when j.job is not null then concat_ws(' ', j.system, 'job', j.job, j.state,
               case when j.reason is not null then '(' || j.reason || ')' end) end as reason
    from requested r full outer join idle_jobs j
      on r.name = j.worker_name or regexp_extract(r.name, '^(.+)-[0-9]+$', 1) = j.worker_name
)
select time, worker, name, cause, reason, system, job from (
    from refused union all by name from failed union all by name
    from waited w where not exists (from refused r where r.name = w.name)
      and not exists (from failed f where f.name = w.name)
)
order by time, name
