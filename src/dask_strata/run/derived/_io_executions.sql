-- Executions of tasks in the process of each Darshan log: recorded ones, else phases. Coroutines
-- share the event loop's thread, so that the thread of an operation is no evidence for them.
-- depends on: _io_workers, attempts, executions, phases
with from_executions as (
    select a.attempt, a.worker, case when e.kind <> 'coroutine' then e.thread end as thread,
           epoch_ns(e.start) as t0, epoch_ns(e.stop) as t1
    from attempts a join executions e
      on e.process = a._process and e.execution = a._execution
    where a.worker in (select worker from _io_workers)
), from_phases as (
    select p.attempt, p.worker, p.thread, epoch_ns(p.start) as t0, epoch_ns(p.stop) as t1
    from phases p anti join from_executions m using (attempt)
    where p.action in ('compute', 'executing')
      and p.worker in (select worker from _io_workers)
)
select p.log, r.attempt, r.worker, r.thread, r.t0, r.t1
from (from from_executions union all from from_phases) r join _io_workers p on p.worker = r.worker
where r.t1 >= r.t0
