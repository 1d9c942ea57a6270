-- Reads and writes that Darshan traced, each attributed to an attempt. The middle of an operation
-- counts, shifted by the clock shift of its log. The attribution by thread is certain, as a thread
-- runs one task at a time; else it is certain if exactly one task ran in the process at that time.
-- Operations on spilled results are Dask's own, whichever task runs meanwhile.
-- depends on: _io_concurrency, _io_event_loops, _io_executions, attempts, darshan_logs,
-- darshan_segments
with logs as (
    select log, process, worker, tied_by is not null as matched,
           (coalesce(clock_shift_seconds, 0) * 1e9)::bigint as shift
    from darshan_logs
), shifted as (
    select s.log, l.process, l.worker, l.matched, s.seq, s.thread, s.module, s.operation,
           s.uri, s."offset", s.length_bytes,
           make_timestamptz((epoch_ns(s.start) + l.shift) // 1000) as start,
           make_timestamptz((epoch_ns(s.stop) + l.shift) // 1000) as stop,
           (epoch_ns(s.stop) - epoch_ns(s.start)) / 1e9 as seconds,
           epoch_ns(s.start) + (epoch_ns(s.stop) - epoch_ns(s.start)) // 2 + l.shift as t,
           o.thread is not null as by_event_loop,
           regexp_matches(s.uri, '/dask-(scratch|worker)-space/.*/storage/') as is_spill
    from darshan_segments s join logs l on l.log = s.log
    left join _io_event_loops o on o.log = s.log and o.thread = s.thread
), task_threads as (
    select distinct log, thread, true as runs_tasks from _io_executions
    where thread is not null
), attributed as (
    select p.*, w.runs_tasks,
           case when p.t <= r.t1 and not p.is_spill then r.attempt end as by_thread,
           case when p.is_spill or w.runs_tasks or p.by_event_loop then 0
                else coalesce(m.n, 0) end as n,
           m.attempt as by_time
    from shifted p
    left join task_threads w on w.log = p.log and w.thread = p.thread
    asof left join (from _io_executions where thread is not null) r
      on r.log = p.log and r.thread = p.thread and p.t >= r.t0
    asof left join _io_concurrency m on m.log = p.log and p.t >= m.t
)
select d.log, d.process, coalesce(a.worker, d.worker) as worker, d.thread, d.module,
       d.operation, d.uri, d."offset", d.length_bytes, d.start, d.stop, d.seconds,
       a.attempt, a.key, a.key_type,
       case when not d.matched then null
            when d.by_thread is not null then 'thread'
            when d.n = 1 then 'alone'
            when d.n > 1 then 'ambiguous' else 'outside' end as attributed_by,
       case when not d.matched then null
            when d.by_thread is not null then 1 else d.n end as n_candidates
from attributed d
left join attempts a
  on a.attempt = coalesce(d.by_thread, case when d.n = 1 then d.by_time end)
