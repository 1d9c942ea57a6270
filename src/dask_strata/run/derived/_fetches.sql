-- Transfers of dependencies to the workers of attempts whose phases the files of an imported run
-- lack: attempts of which only the worker has rows (`execution` is their number), and those whose
-- first interval on record is not their function (`number`). A transfer counts from the moment that
-- the worker had the task. Times are in ns, on the clock of the worker's transitions.
-- depends on: _attempts_on_workers, _imported_workers, _numbered_transfers, _scheduler_attempts,
-- _scheduler_phases, _worker_executions, graph_edges, imports, transfer_end_keys, transfer_ends,
-- worker_transitions
-- by key: _attempts_on_workers, _scheduler_attempts, _scheduler_phases, _worker_executions,
-- graph_edges, worker_transitions
with arrivals as (
    -- A worker reports a transfer as soon as it has the data, by the clock of its transitions; the
    -- start and the stop are shifted by its estimate of the scheduler's clock.
    select n.destination as worker, k._key, n.source, epoch_ns(n.start) as reported,
           epoch_ns(case when e."end" = 'incoming' then coalesce(e.time, n.stop) else n.stop end)
               as b,
           b - (epoch_ns(n.stop) - epoch_ns(n.start)) as a
    from _numbered_transfers n
    join transfer_ends e on e.process = n.process and e.number = n.number
    join transfer_end_keys k on k.process = n.process and k.number = n.number
    where exists (from imports where kind is null)
), waiting as (
    select coalesce(p.address, w.worker) as worker, w._key, epoch_ns(w.time) as t
    from worker_transitions w left join _imported_workers p on p.name = w.worker
    where w.file is not null and w.finish_state = 'waiting'
), windows as (
    select null as number, r.number as execution, r._key, r.worker, w.t as t0,
           epoch_ns(r.start) as t1
    from _worker_executions r asof join waiting w
      on w.worker = r.worker and w._key = r._key and w.t <= epoch_ns(r.start)
    where not r.scheduled
    union all by name
    select s.number, s._key, s.last_worker as worker, epoch_ns(s.start) as t0,
           epoch_ns(coalesce(r.start, s.stop)) as t1
    from _scheduler_attempts s
    anti join (from _scheduler_phases where action <> 'transfer') p on p.number = s.number
    left join _attempts_on_workers d on d.number = s.number
    left join _worker_executions r on r.number = d.worker_execution
    where s.start is not null and s.stop is not null
), needs as (
    select distinct _key, _dependency from graph_edges
    where exists (from imports where kind is null)
)
select w.number, w.execution, f.source, greatest(f.a, w.t0) as start, f.b as stop
from windows w join needs e on e._key = w._key
join arrivals f on f._key = e._dependency and f.worker = w.worker
 -- The reported moment is a little later than the arrival, after which the task may begin.
 and f.b > w.t0 and f.a <= w.t1 + 10000000
left join _scheduler_phases p
  on p.number = w.number and p.action = 'transfer' and abs(epoch_ns(p.start) - f.reported) <= 10000
where p.number is null
group by all
