-- Workers that the scheduler removed, and how the process of each ended.
-- A nanny records the exit of a process by its id, not by the worker's address: it may still have
-- the address of the process before. Process ids repeat on other hosts, so name or host must match.
-- Dask calls it unexpected if a restart removes a worker without a nanny; a worker also announces
-- that it closes because of an error, or because the scheduler restarts it after missing heartbeats.
-- A batch system, MPI or SSH ends the processes of a cluster together. So the end of a worker is planned,
-- too, if its process ended in an orderly way (by SIGTERM, or without a signal and with status 0)
-- shortly before the scheduler did, if no worker arrived in between, and if no task was lost with it or
-- the same signal ended both.
-- A nanny that was killed writes nothing more, and its worker's process ends itself then: both records
-- stop, while the scheduler's continues.
-- A batch job that failed or reached a limit is no plan.
-- depends on: _job_ends, _other_transitions, _worker_connections, overheads, processes, scheduler_transitions,
-- worker_events, worker_samples
with silences as (
    select worker, time from worker_events where action = 'no-heartbeat'
), last_samples as (
    select process, max(time) as time from worker_samples where seen_by = 'worker' group by process
), removed as (
    select *, regexp_extract(worker, '://(.*):[0-9]+$', 1) as interface,
           coalesce(regexp_matches(end_reason, '(check-worker-ttl|worker-heartbeat-)'), false)
               or exists (from silences s where s.worker = c.worker
                          and s.time >= c.start and s.time <= c.removed) as silent
    from _worker_connections c where removed is not null
), schedulers as (
    select max(stop) as stop, arg_max(exit_reason, stop) as reason
    from processes where role = 'scheduler'
), arrivals as (
    select max(time) as last_arrival from worker_events where action = 'add'
), losing as (
    select distinct stimulus_id from scheduler_transitions
    where start_state = 'processing'
      and stimulus_id in (select end_stimulus_id from removed)
), losing_of_others as (
    -- Of other clients' tasks, if they are left out, only the workers' rows are there.
    select distinct worker from (
        select worker, arg_max(finish_state, seq) as state from _other_transitions
        group by worker, _key)
    where state in ('waiting', 'ready', 'constrained', 'executing', 'long-running')
), numbered as (
    select row_number() over (order by removed, worker) as number, *,
           case when regexp_matches(end_reason, '^unexpected: client-restart') then 'planned'
                when starts_with(end_reason, 'unexpected') then 'unexpected'
                when silent or regexp_matches(end_reason,
                    '^announced: (failure-to-start|worker-handle-scheduler-|.*-fail-hard$)')
                    then 'unexpected'
                when regexp_matches(end_reason, '^(announced|expected): ') then 'planned'
           end as stated
    from removed
), exits as (
    select e.process, e.seq, e.time, e.name, p.host,
           regexp_extract(p.address, '://(.*):[0-9]+$', 1) as interface,
           try_cast(regexp_extract(e.reason, '^pid ([0-9]+) ', 1) as bigint) as pid,
           nullif(regexp_extract(e.reason, ' was killed by (?:signal )?(.+)$', 1), '') as signal,
           try_cast(regexp_extract(e.reason, ' exited with status ([0-9]+)$', 1) as bigint)
               as exit_status
    from worker_events e left join processes p on p.process = e.process
    where e.action = 'process-exit'
), exited as (
    -- An exit belongs to the last connection of its process.
    select n.number, e.time, e.signal, e.exit_status
    from exits e join numbered n on n.pid = e.pid
     and (n.name = e.name or n.host = e.host or n.interface = e.interface)
     and epoch_ns(e.time) >= epoch_ns(n.start) - 5000000000
    qualify row_number() over (partition by e.process, e.seq order by n.start desc) = 1
        and row_number() over (partition by n.number order by e.time) = 1
), evidence as (
    -- Of a process that died of SIGKILL, its nanny records the kernel's counter of OOM kills.
    select n.number, arg_min(e.action = 'oom-kill', e.time) as by_kernel,
           arg_min(regexp_extract(e.reason, '^pid [0-9]+: (.*)$', 1, 's'), e.time) as evidence
    from worker_events e left join processes p on p.process = e.process
    join numbered n
      on n.pid = try_cast(regexp_extract(e.reason, '^pid ([0-9]+): ', 1) as bigint)
     and (n.name = e.name or n.host = p.host
          or n.interface = regexp_extract(p.address, '://(.*):[0-9]+$', 1))
    join exited x on x.number = n.number
     and abs(epoch_ns(e.time) - epoch_ns(x.time)) < 5000000000
    where e.action in ('oom-kill', 'no-oom-kill') group by n.number
), last_looks as (
    select process, max(time) as time from overheads
    where process in (select process from processes where role in ('nanny', 'scheduler'))
    group by process
), nannies as (
    -- The nanny that started the process, if its record has no end.
    select n.number, max(p.pid) as pid, max(l.time) as time
    from worker_events e join processes p on p.process = e.process and p.role = 'nanny'
    join last_looks l on l.process = p.process
    join numbered n
      on n.pid = try_cast(regexp_extract(e.reason, '^pid ([0-9]+)$', 1) as bigint)
     and (n.name = e.name or n.host = p.host
          or n.interface = regexp_extract(p.address, '://(.*):[0-9]+$', 1))
     and epoch_ns(e.time) between epoch_ns(n.start) - 60000000000 and epoch_ns(n.removed)
    where e.action = 'process-start' and p.exit_reason is null group by n.number
), gone as (
    select a.number, a.pid from nannies a join numbered n using (number)
    cross join (select max(l.time) as time from last_looks l join processes p using (process)
                where p.role = 'scheduler') s
    where epoch_ns(a.time) - epoch_ns(n.removed) between -60000000000 and 5000000000
      and epoch_ns(s.time) - epoch_ns(a.time) > 3000000000
      and n.process_stop is null
), kills as (
    select n.number, min(e.time) as time, arg_min(try_cast(
               regexp_extract(e.reason, '"rss": ([0-9]+)', 1) as bigint), e.time) as memory_bytes
    from worker_events e join numbered n
      on n.pid = try_cast(regexp_extract(e.reason, '"pid": ([0-9]+)', 1) as bigint)
     and (e.worker is null or regexp_extract(e.worker, '://(.*):[0-9]+$', 1) = n.interface)
     and epoch_ns(e.time) between epoch_ns(n.start) - 5000000000
                              and epoch_ns(n.removed) + 5000000000
    where e.action = 'memory-limit-kill' group by n.number
), ends as (
    select n.*, case
        when stated = 'unexpected' and not n.silent and k.number is null
         and starts_with(end_reason, 'unexpected')
         and (x.signal = 'SIGTERM' or x.exit_status = 0
              or (x.number is null and exit_reason in ('SIGTERM', 'closed', 'process exit')))
         -- A process that lived on did not end the connection.
         and epoch_ns(coalesce(x.time, process_stop)) - epoch_ns(removed) < 5000000000
         and s.reason in ('SIGTERM', 'closed')
         and epoch_ns(s.stop) - epoch_ns(removed) between 0 and 30000000000
         and coalesce(removed > c.last_arrival, true)
         and coalesce(j.job_state, 'CANCELLED') = 'CANCELLED'
         and ((l.stimulus_id is null and o.worker is null)
              or (s.reason = 'SIGTERM' and coalesce(exit_reason, x.signal) = 'SIGTERM'
                  and epoch_ns(s.stop) - epoch_ns(removed) < 10000000000))
        then 'planned' else stated end as ended
    from numbered n cross join schedulers s cross join arrivals c
    left join exited x on x.number = n.number
    left join kills k on k.number = n.number left join losing l on l.stimulus_id = n.end_stimulus_id
    left join losing_of_others o on o.worker = n.worker
    left join _job_ends j on j.worker = n.worker and j.stop = n.removed
)
select n.worker, n.name, n.process, n.host, n.pid, n.start, n.removed as stop, n.ended,
       case when v.by_kernel then 'oom killer'
            when k.number is not null then 'memory limit'
            when n.ended = 'planned' then 'closed'
            when n.silent then 'no heartbeat'
            when starts_with(n.end_reason, 'announced') and n.end_reason not like '%-connection-%'
                then 'closed'
            when g.number is not null and x.number is null then 'nanny lost'
            -- The end of a process that was still recorded did not end its connection.
            when epoch_ns(x.time) > epoch_ns(n.removed) + 30000000000
              or epoch_ns(s.time) > epoch_ns(n.removed) + 1000000000
              or (n.exit_reason = 'closed' and coalesce(x.exit_status, 0) = 0)
                then 'connection lost'
            when x.signal is not null or n.exit_reason = 'SIGTERM' then 'signal'
            when x.exit_status is not null then 'exit'
            when n.ended is not null then 'connection lost' end as cause,
       coalesce(x.signal, case when n.exit_reason = 'SIGTERM' then 'SIGTERM' end) as signal,
       x.exit_status, x.time as exited, k.time as killed, k.memory_bytes,
       n.memory_limit_bytes, v.evidence, g.pid as nanny_pid, n.end_reason as reason,
       n.end_stimulus_id as stimulus_id
from ends n left join exited x on x.number = n.number left join kills k on k.number = n.number
left join last_samples s on s.process = n.process
left join evidence v on v.number = n.number left join gone g on g.number = n.number
order by n.removed, n.worker
