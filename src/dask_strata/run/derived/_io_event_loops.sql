-- The thread that runs Dask's event loop in the process of a Darshan log, as recorded there. In
-- other runs: the one of the first traced operation, if that was before any task, and if no task
-- ran in it. A log may begin with any thread, where Darshan left out the reads of Python's imports.
-- depends on: _io_executions, _io_threads, darshan_logs, darshan_segments
with first_operations as (
    select l.log, l.main_thread as thread, min(epoch_ns(s.start))
           + (coalesce(max(l.clock_shift_seconds), 0) * 1e9)::bigint as t
    from darshan_logs l join darshan_segments s
      on s.log = l.log and s.thread = l.main_thread
    group by l.log, l.main_thread
), executed as (
    select log, min(t0) as t, list(distinct thread) as threads from _io_executions group by log
)
select log, thread from _io_threads where purpose = 'event loop'
union all
select b.log, b.thread from first_operations b join executed r on r.log = b.log
where b.t < r.t and not coalesce(list_contains(r.threads, b.thread), false)
  and b.log not in (select log from _io_threads where purpose = 'event loop')
