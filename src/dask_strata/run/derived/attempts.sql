-- Attempts: those of the scheduler, with the resources that their executions used, then those
-- that only workers recorded.
-- depends on: _assigned_workers, _attempts_on_workers, _definitions, _executions_of_attempts,
-- _keys, _rescheduling_workers, _scheduler_attempts, _scheduler_phases, _steals_of_attempts,
-- _worker_executions, executions, library_reads, worker_events
with removals as (
    select distinct worker, stimulus_id from worker_events
    where action = 'remove' and stimulus_id is not null
), timed as (
    select number, case when action like 'disk%' then 'disk' else action end as action,
           epoch_ns(start) as a, epoch_ns(stop) as b
    from _scheduler_phases
), without_overlap as (
    -- Dependencies arrive from several workers at the same time: each moment counts once.
    select number, action, b, greatest(a, coalesce(max(b) over (
               partition by number, action order by a, b
               rows between unbounded preceding and 1 preceding), a)) as a
    from timed
), spent as (
    select number,
        sum(greatest(b - a, 0)) filter (action = 'compute') / 1e9 as compute_seconds,
        sum(greatest(b - a, 0)) filter (action = 'transfer') / 1e9 as transfer_seconds,
        sum(greatest(b - a, 0)) filter (action = 'deserialize') / 1e9 as deserialize_seconds,
        sum(greatest(b - a, 0)) filter (action = 'disk') / 1e9 as disk_seconds
    from without_overlap group by number
), counted as (
    select process, execution, sum(requested_bytes)::bigint as library_bytes
    from library_reads group by process, execution
), scheduled as (
select s.number as attempt, s._key, c.key, c.key_type, k.prefix, k."group",
       coalesce(s.last_worker, e.worker, t.worker, s.first_worker, a.worker) as worker,
       s.thread, s.start, s.stop,
       case when s.end_state is null then 'running'
            when s.end_state in ('memory', 'erred') then s.end_state
            when s.exception is not null then 'retried'
            when r.worker is not null then 'lost'
            when s.stimulus_id like 'reschedule-%' then 'rescheduled'
            else 'released' end as outcome,
       coalesce(p.compute_seconds, x.seconds) as compute_seconds,
       p.transfer_seconds, p.deserialize_seconds, p.disk_seconds,
       s.nbytes, s.typename, coalesce(s.exception, u.exception) as exception,
       s.traceback, coalesce(s.run_id, u.run_id) as run_id, s.stimulus_id,
       s.seq as _seq, case when p.compute_seconds is null then x.number end as _number,
       u.process as _process, u.execution as _execution, u.kind, u.cpu_seconds,
       u.read_bytes, u.write_bytes, u.read_calls, u.write_calls, u.storage_read_bytes,
       u.storage_write_bytes, u.minor_faults, u.major_faults, u.voluntary_switches,
       u.involuntary_switches, u.rss_before_bytes, u.rss_after_bytes, u.rss_peak_bytes,
       u.shared, u.elsewhere, u.n_opened, l.library_bytes
from _scheduler_attempts s
left join _keys c on c._key = s._key
left join _definitions k on k._key = s._key
left join _steals_of_attempts t on t.number = s.number
left join _rescheduling_workers e on e.number = s.number
left join _assigned_workers a on a.number = s.number
left join removals r on r.stimulus_id = s.stimulus_id and r.worker = s.last_worker
left join spent p on p.number = s.number
left join _attempts_on_workers d on d.number = s.number
left join _worker_executions x on x.number = d.worker_execution
left join _executions_of_attempts n on n.number = s.number
left join executions u on u._row = n._row
left join counted l on l.process = u.process and l.execution = u.execution
), unscheduled as (
    select (select count(*) from _scheduler_attempts)
               + row_number() over (order by e.start, e.key) as attempt,
           e._key, e.key, e.key_type, k.prefix, k."group", e.worker, e.start, e.stop,
           case e.end_state when 'error' then 'erred' when 'memory' then 'memory'
                when 'rescheduled' then 'rescheduled' else
                case when e.end_state is null then 'running' else 'released' end
           end as outcome,
           e.seconds as compute_seconds, e.number as _number
    from _worker_executions e left join _definitions k on k._key = e._key
    where not e.scheduled
)
from (select * from scheduled union all by name select * from unscheduled) order by attempt
