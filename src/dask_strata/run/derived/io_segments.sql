-- Reads and writes that Darshan traced, each attributed to an attempt. The middle of an operation
-- counts, shifted by the clock shift of its log. The attribution by thread is certain, as a thread
-- runs one task at a time. An operation of any other thread belongs to no task for certain. Only
-- where threads cannot be compared does the only task that ran in the process count.
-- Operations on spilled results are Dask's own, and those on the run's folder the recorder's,
-- whichever task runs meanwhile.
-- depends on: _io_concurrency, _io_event_loops, _io_executions, _io_recorder_folders, _io_threads,
-- attempts, darshan_logs, darshan_segments
with logs as (
    select log, process, worker, tied_by is not null as matched,
           (coalesce(clock_shift_seconds, 0) * 1e9)::bigint as shift
    from darshan_logs
), uris as (
    select uri, regexp_matches(uri, '/dask-(scratch|worker)-space/.*/storage/') as is_spill,
           exists (from _io_recorder_folders f where starts_with(uri, f.folder)) as is_record
    from (select distinct uri from darshan_segments)
), task_threads as (
    select distinct log, thread, true as runs_tasks from _io_executions
    where thread is not null
), threaded as (
    select distinct log, true as has_threads from task_threads
), recorders as (
    select log, thread, true as records from _io_threads where purpose = 'recorder'
), shifted as (
    select s.log, l.process, l.worker, l.matched, s.seq, s.thread, s.module, s.operation,
           s.uri, s."offset", s.length_bytes,
           make_timestamptz((epoch_ns(s.start) + l.shift) // 1000) as start,
           make_timestamptz((epoch_ns(s.stop) + l.shift) // 1000) as stop,
           (epoch_ns(s.stop) - epoch_ns(s.start)) / 1e9 as seconds,
           epoch_ns(s.start) + (epoch_ns(s.stop) - epoch_ns(s.start)) // 2 + l.shift as t,
           coalesce(r.records or u.is_record, false) as is_record,
           coalesce(w.runs_tasks or u.is_spill or o.thread is not null, false) as is_outside,
           coalesce(u.is_spill, false) as is_spill,
           s.thread is not null and coalesce(h.has_threads, false) as has_thread
    from darshan_segments s join logs l on l.log = s.log
    left join _io_event_loops o on o.log = s.log and o.thread = s.thread
    left join recorders r on r.log = s.log and r.thread = s.thread
    left join task_threads w on w.log = s.log and w.thread = s.thread
    left join threaded h on h.log = s.log
    left join uris u on u.uri = s.uri
), attributed as (
    select p.*,
           case when p.t <= r.t1 and not p.is_spill then r.attempt end as by_thread,
           case when p.is_record or p.is_outside then 0 else coalesce(m.n, 0) end as n,
           m.attempt as by_time
    from shifted p
    asof left join (from _io_executions where thread is not null) r
      on r.log = p.log and r.thread = p.thread and p.t >= r.t0
    asof left join _io_concurrency m on m.log = p.log and p.t >= m.t
), judged as (
    select *, case when matched and by_thread is not null then 'thread'
                   when is_record then 'recorder'
                   when not matched then null
                   when n = 0 then 'outside'
                   when has_thread then 'elsewhere'
                   when n = 1 then 'alone' else 'ambiguous' end as attributed_by
    from attributed
)
select d.log, d.process, coalesce(a.worker, d.worker) as worker, d.thread, d.module,
       d.operation, d.uri, d."offset", d.length_bytes, d.start, d.stop, d.seconds,
       a.attempt, a._key, a.key, a.key_type, d.attributed_by,
       case when d.attributed_by = 'thread' then 1
            when d.matched then d.n end as n_candidates,
       case when d.attributed_by = 'elsewhere' and d.n = 1 then d.by_time end as candidate
from judged d
left join attempts a
  on a.attempt = coalesce(d.by_thread, case when d.attributed_by = 'alone' then d.by_time end)
