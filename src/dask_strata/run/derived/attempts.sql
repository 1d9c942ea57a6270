-- Attempts: those of the scheduler, with the resources that their executions used, then those
-- that only workers recorded. Startstops are all phases of an attempt, so that a phase that is not
-- among them took no time; of an imported attempt only the first phase is known.
-- depends on: _assigned_workers, _attempts_on_workers, _definitions, _disk_phases,
-- _executions_of_attempts, _fetches, _keys, _rescheduling_workers, _scheduler_attempts,
-- _scheduler_phases, _steals_of_attempts, _task_clients, _unreported_executions,
-- _unscheduled_numbers, _worker_executions, executions, imports, library_reads, processes, spans, spills,
-- worker_ends, worker_events
-- by key: _assigned_workers, _attempts_on_workers, _definitions, _disk_phases,
-- _executions_of_attempts, _fetches, _keys, _rescheduling_workers, _scheduler_attempts,
-- _scheduler_phases, _steals_of_attempts, _task_clients, _unreported_executions,
-- _unscheduled_numbers, _worker_executions, executions, library_reads
-- order: attempt
with known as (
    select not exists (from imports where kind is null) as phases,
           exists (from processes where role = 'worker') or exists (from spills) as spills
), removals as (
    select distinct worker, stimulus_id from worker_events
    where action = 'remove' and stimulus_id is not null
), ends as (
    select worker, stimulus_id, any_value(case cause when 'signal' then signal
               when 'exit' then 'exit status ' || exit_status else cause end) as worker_end
    from worker_ends where stimulus_id is not null group by worker, stimulus_id
), timed as (
    select number, action, epoch_ns(start) as a, epoch_ns(stop) as b from _scheduler_phases
    union all by name
    select number, 'transfer' as action, start as a, stop as b from _fetches
    where number is not null
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
        bool_or(action like 'disk%') as disk
    from without_overlap group by number
), spilled as (
    select number, coalesce(sum(stop - start) filter (spill), 0) / 1e9 as seconds,
           coalesce(sum(stop - start) filter (not spill), 0) / 1e9 as other_seconds
    from _disk_phases group by number
), fetched as (
    select execution, sum(greatest(stop - start, 0)) / 1e9 as seconds
    from (select execution, stop, greatest(start, coalesce(max(stop) over (
                     partition by execution order by start, stop
                     rows between unbounded preceding and 1 preceding), start)) as start
          from _fetches where number is null)
    group by execution
), executed as (
    select number, any_value(worker) as worker, any_value(thread) as thread,
           sum(seconds) as seconds
    from _unreported_executions group by number
), counted as (
    select process, execution, sum(requested_bytes)::bigint as library_bytes
    from library_reads group by process, execution
), scheduled as (
select s.number as attempt, s._key, c.key, c.key_type,
       coalesce(k.prefix, key_prefix(c.key, c.key_type)) as prefix, k."group", q.client, y.name as span,
       coalesce(s.last_worker, e.worker, t.worker, s.first_worker, a.worker, m.worker) as worker,
       coalesce(s.thread, m.thread) as thread, s.start, s.stop,
       case when s.end_state is null then 'running'
            when s.end_state in ('memory', 'erred') then s.end_state
            when s.exception is not null then 'retried'
            when r.worker is not null then 'lost'
            when s.stimulus_id like 'reschedule-%' then 'rescheduled'
            else 'released' end as outcome,
       coalesce(p.compute_seconds, x.seconds, m.seconds) as compute_seconds,
       coalesce(p.transfer_seconds,
                case when p.number is not null and (v.phases or p.compute_seconds is not null)
                     then 0 end) as transfer_seconds,
       coalesce(p.deserialize_seconds, case when p.number is not null and v.phases then 0 end)
           + case when v.spills then coalesce(i.other_seconds, 0) else 0 end as deserialize_seconds,
       case when v.spills or not p.disk then coalesce(
                i.seconds, case when p.number is not null and v.phases then 0 end)
           end as disk_seconds,
       s.nbytes, s.typename,
       coalesce(s.exception, case when u.outcome is distinct from 'rescheduled' then u.exception end)
           as exception, w.worker_end,
       s.traceback, coalesce(s.run_id, u.run_id) as run_id, s.stimulus_id,
       s.seq as _seq, case when p.compute_seconds is null then x.number end as _number,
       u.process as _process, u.execution as _execution, u.kind, u.cpu_seconds,
       u.process_cpu_seconds,
       case when not u.shared then u.process_cpu_seconds - u.cpu_seconds end as other_cpu_seconds,
       u.read_bytes, u.write_bytes, u.read_calls, u.write_calls, u.storage_read_bytes,
       u.storage_write_bytes, u.minor_faults, u.major_faults, u.voluntary_switches,
       u.involuntary_switches, u.rss_before_bytes, u.rss_after_bytes, u.rss_peak_bytes,
       u.other_read_bytes, u.other_write_bytes, u.shared, u.elsewhere, u.n_opened, l.library_bytes
from _scheduler_attempts s cross join known v
left join _keys c on c._key = s._key
left join _definitions k on k._key = s._key
left join _task_clients q on q._key = s._key and q.life = s.life
left join (select span, any_value(name) as name from spans group by span) y on y.span = q.span
left join _steals_of_attempts t on t.number = s.number
left join _rescheduling_workers e on e.number = s.number
left join _assigned_workers a on a.number = s.number
left join spent p on p.number = s.number
left join _attempts_on_workers d on d.number = s.number
left join _worker_executions x on x.number = d.worker_execution
left join _executions_of_attempts n on n.number = s.number
left join executions u on u._row = n._row
left join executed m on m.number = s.number
left join removals r on r.stimulus_id = s.stimulus_id
 and r.worker = coalesce(s.last_worker, e.worker, t.worker, s.first_worker, a.worker, m.worker)
left join ends w on w.stimulus_id = s.stimulus_id
 and w.worker = coalesce(s.last_worker, e.worker, t.worker, s.first_worker, a.worker, m.worker)
left join spilled i on i.number = s.number
left join counted l on l.process = u.process and l.execution = u.execution
), unscheduled as (
    select u.attempt, e._key, e.key, e.key_type,
           coalesce(k.prefix, key_prefix(e.key, e.key_type)) as prefix, k."group", e.worker,
           e.start, e.stop,
           case e.end_state when 'error' then 'erred' when 'memory' then 'memory'
                when 'rescheduled' then 'rescheduled' else
                case when e.end_state is null then 'running' else 'released' end
           end as outcome,
           e.seconds as compute_seconds, f.seconds as transfer_seconds, e.number as _number
    from _worker_executions e join _unscheduled_numbers u on u.number = e.number and u._key = e._key
    left join _definitions k on k._key = e._key
    left join fetched f on f.execution = e.number
    where not e.scheduled
)
from (select * from scheduled union all by name select * from unscheduled)
