-- Long collections of the garbage collector: one row for each recorded scheduler and worker in the
-- process of the operating system that was stopped (worker is null for a scheduler), with the attempt
-- whose thread ran the collection. Times are in ns.
-- depends on: attempts, gc_pauses, processes
with servers as (
    select process, role, host, pid, case role when 'worker' then address::varchar end as worker,
           start, stop
    from processes where role in ('scheduler', 'worker')
), started as (
    select g.process, g.seq, min(a.attempt) as attempt
    from gc_pauses g join attempts a
      on a._key = g._key and a.run_id = g.run_id and coalesce(a.worker = g.worker, true)
    group by all
)
select s.process, s.worker, epoch_ns(g.start) as start_ns, epoch_ns(g.stop) as stop_ns,
       g.generation, g.thread, t.attempt
from gc_pauses g
join processes p on p.process = g.process
join servers s on s.process = p.process or (s.host = p.host and s.pid = p.pid
  and s.start <= g.stop and coalesce(s.stop >= g.start, true))
left join started t on t.process = g.process and t.seq = g.seq
where g.stop > g.start
order by start_ns, s.process
