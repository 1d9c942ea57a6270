-- The recorded execution of each attempt: matched by Dask's run id. The scheduler does not
-- receive the run id of an attempt that was cancelled or rescheduled: of the executions that
-- started on its worker during the attempt (or within 1 s before or after), the one with the
-- nearest start matches.
-- depends on: _assigned_workers, _numbered_executions, _rescheduling_workers, _scheduler_attempts,
-- _steals_of_attempts
-- by key: _assigned_workers, _numbered_executions, _rescheduling_workers,
-- _scheduler_attempts, _steals_of_attempts
select s.number, u._row from _scheduler_attempts s join _numbered_executions u
  on u._key = s._key and u.run_id = s.run_id
 and u.worker = s.last_worker and u.nth = 1
union all
select number, _row from (
    select s.number, u._row,
           row_number() over (partition by s.number order by
               abs(epoch_ns(u.start) - epoch_ns(s.start))) as nth_execution,
           row_number() over (partition by u._row order by
               abs(epoch_ns(u.start) - epoch_ns(s.start))) as nth_attempt
    from _scheduler_attempts s
    left join _rescheduling_workers e on e.number = s.number
    left join _steals_of_attempts t on t.number = s.number
    left join _assigned_workers a on a.number = s.number
    join _numbered_executions u on u._key = s._key
     and u.worker = coalesce(s.last_worker, e.worker, t.worker, s.first_worker, a.worker)
     and epoch_ns(u.start) >= epoch_ns(s.start) - 1000000000
     and (s.stop is null or epoch_ns(u.start) <= epoch_ns(s.stop) + 1000000000)
    where s.run_id is null and not exists (
        select 1 from _scheduler_attempts o
        where o._key = u._key and o.run_id = u.run_id
    )
) where nth_execution = 1 and nth_attempt = 1
