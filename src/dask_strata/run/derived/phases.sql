-- Phases of attempts: those that workers report to the scheduler, and executions that only
-- transitions of workers record.
-- depends on: _scheduler_phases, _worker_executions, attempts
select a.attempt, a.key, a.key_type, a.worker, a.thread, p.action, p.start, p.stop,
       (epoch_ns(p.stop) - epoch_ns(p.start)) / 1e9 as seconds, p.source
from attempts a join _scheduler_phases p on p.number = a.attempt
union all by name
select a.attempt, a.key, a.key_type, a.worker, a.thread, 'executing' as action,
       e.start, e.stop, e.seconds
from attempts a join _worker_executions e on e.number = a._number where e.stop is not null
order by attempt, start
