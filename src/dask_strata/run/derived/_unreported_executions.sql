-- Executions of attempts for which the scheduler received no compute interval: of running, lost,
-- cancelled and rescheduled attempts. The measured execution counts; otherwise the time in which
-- the worker's transitions show the task executing, until the worker was removed or the record
-- ended. Of a worker that was removed because it was silent, its last sign of life counts.
-- `compute-task-…`, the stimulus of a worker's transitions, contains the time of the assignment.
-- depends on: _bounds, _executions_of_attempts, _scheduler_attempts, _scheduler_phases,
-- _silences, _worker_connections, executions, worker_transitions
-- by key: _executions_of_attempts, _scheduler_attempts, _scheduler_phases, executions,
-- worker_transitions
with unreported as (
    select s.number, s._key from _scheduler_attempts s
    anti join (select number from _scheduler_phases where action = 'compute') p
      on p.number = s.number
), measured as (
    select u.number, e.worker, e.thread, e.start, e.stop
    from unreported u join _executions_of_attempts n on n.number = u.number
    join executions e on e._row = n._row where e.start is not null and e.stop is not null
), unmeasured as (
    select _key from unreported where number not in (select number from measured)
), attempts_of_keys as (
    select number, _key, epoch_ns(start) as t0, epoch_ns(stop) as t1
    from _scheduler_attempts where start is not null and _key in (from unmeasured)
), steps as (
    select worker, _key, time, seq, start_state, finish_state,
           last_value(try_cast(substr(stimulus_id, 14) as double)
               ignore nulls) over (partition by worker, _key order by time, seq) as assigned
    from (select * replace (
              case when stimulus_id like 'compute-task-%' then stimulus_id end as stimulus_id)
          from worker_transitions where file is null and _key in (from unmeasured))
), periods as (
    -- A cancelled function goes on until it returns.
    select *, lead(time) over (partition by worker, _key order by time, seq) as stop from steps
    where (finish_state = 'executing')
            <> (start_state in ('executing', 'long-running', 'cancelled', 'resumed'))
      and finish_state not in ('long-running', 'cancelled', 'resumed')
), executed as (
    select row_number() over () as period, worker, _key, time as start, stop,
           (assigned * 1e9)::bigint as assigned
    from periods where finish_state = 'executing' and assigned is not null
), removals as (
    select c.worker, c.start, coalesce(s.start, c.stop) as stop
    from _worker_connections c
    left join _silences s on s.worker = c.worker and s.stop = c.removed
    where c.start is not null
), ended as (
    select p.period, p.worker, p._key, p.assigned, p.start,
           least(p.stop, r.stop, b.last) as stop
    from executed p cross join _bounds b
    asof left join removals r on r.worker = p.worker and r.start <= p.start
), assigned as (
    -- Work stealing assigns an attempt that is already under way; otherwise the attempt starts
    -- just after the worker's message was made.
    select e.*, case when s.t1 is null or s.t1 > e.assigned then s.number end as stolen
    from ended e asof left join attempts_of_keys s
      on s._key = e._key and s.t0 <= e.assigned
), matched as (
    select coalesce(e.stolen, s.number) as number, e.worker, e.start, e.stop
    from assigned e asof left join attempts_of_keys s
      on s._key = e._key and s.t0 >= e.assigned - 1000
)
select number, worker, thread, start, stop,
       (epoch_ns(stop) - epoch_ns(start)) / 1e9 as seconds
from (
    from measured union all by name
    from matched where number in (select number from unreported)
                   and number not in (select number from measured)
                   -- Of a worker that was silent from the start on, nothing is known.
                   and stop > start
) where stop >= start
