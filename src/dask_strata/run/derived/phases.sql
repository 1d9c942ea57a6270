-- Phases of attempts: those that workers report to the scheduler, executions that only workers
-- record, and transfers of dependencies where imported files lack the phases.
-- depends on: _fetches, _scheduler_phases, _unreported_executions, _worker_executions, attempts
-- by key: _fetches, _scheduler_phases, _unreported_executions, _worker_executions, attempts
-- order: attempt, start
select a.attempt, a._key, a.key, a.key_type, a.worker, a.thread, p.action, p.start, p.stop,
       (epoch_ns(p.stop) - epoch_ns(p.start)) / 1e9 as seconds, p.source
from attempts a join _scheduler_phases p on p.number = a.attempt
union all by name
select a.attempt, a._key, a.key, a.key_type, a.worker, a.thread, 'executing' as action,
       e.start, e.stop, e.seconds
from attempts a join _worker_executions e on e.number = a._number where e.stop is not null
union all by name
select a.attempt, a._key, a.key, a.key_type, e.worker, coalesce(a.thread, e.thread) as thread,
       'executing' as action, e.start, e.stop, e.seconds
from attempts a join _unreported_executions e on e.number = a.attempt
union all by name
select a.attempt, a._key, a.key, a.key_type, a.worker, a.thread, 'transfer' as action,
       make_timestamp_ns(f.start) as start, make_timestamp_ns(f.stop) as stop,
       (f.stop - f.start) / 1e9 as seconds, f.source
from attempts a join _fetches f
  on f.number = a.attempt or f.number is null and f.execution = a._number
