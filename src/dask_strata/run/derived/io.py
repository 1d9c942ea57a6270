"""Who did which read and write that Darshan traced, as SQL: see `derive`.

An operation is placed by its middle, its times shifted by what importing found for its log. By
thread it is certain: a thread runs one task at a time. Else it is certain if one task ran in the
process then. The thread that traced first, before any task, is the one that runs Dask's event
loop, if no task ran in it.
"""

from __future__ import annotations

IO_QUERIES: dict[str, str] = {
    # Which workers are in the process of a log: several, if they are threads of one process.
    "_io_places": """
        select log, worker from darshan_logs where worker is not null
        union
        select l.log, w.address
        from darshan_logs l join processes p on p.process = l.process
        join processes w on w.role = 'worker' and w.pid = p.pid and w.host = p.host
        where w.address is not null and (w.start is null or w.start <= l.stop)
          and (w.stop is null or w.stop >= l.start)
    """,
    "_io_runs": """
        with measured as (
            select a.attempt, a.worker, e.thread, epoch_ns(e.start) as t0, epoch_ns(e.stop) as t1
            from attempts a join executions e
              on e.process = a._process and e.execution = a._execution
            where a.worker in (select worker from _io_places)
        ), told as (
            select p.attempt, p.worker, p.thread, epoch_ns(p.start) as t0, epoch_ns(p.stop) as t1
            from phases p anti join measured m using (attempt)
            where p.action in ('compute', 'executing')
              and p.worker in (select worker from _io_places)
        )
        select p.log, r.attempt, r.worker, r.thread, r.t0, r.t1
        from (from measured union all from told) r join _io_places p on p.worker = r.worker
        where r.t1 >= r.t0
    """,
    # How many tasks ran in a process, from each moment at which that changed; where it is one,
    # the sum of the attempts' numbers is the attempt's number.
    "_io_steps": """
        with changes as (
            select log, t0 as t, 1 as n, attempt from _io_runs
            union all select log, t1 + 1, -1, -attempt from _io_runs
        ), moments as (
            select log, t, sum(n) as n, sum(attempt) as attempt from changes group by log, t
        )
        select log, t, (sum(n) over life)::bigint as n,
               (sum(attempt) over life)::bigint as attempt
        from moments window life as (partition by log order by t)
    """,
    # Which thread runs Dask's event loop in the process of a log: the one that traced first, if
    # that was before any task, and if no task ran in it. A log may begin with any thread, where
    # Darshan had left out what the imports of Python read.
    "_io_loops": """
        with begun as (
            select l.log, l.main_thread as thread, min(epoch_ns(s.start))
                   + (coalesce(max(l.clock_shift_seconds), 0) * 1e9)::bigint as t
            from darshan_logs l join darshan_segments s
              on s.log = l.log and s.thread = l.main_thread
            group by l.log, l.main_thread
        ), ran as (
            select log, min(t0) as t, list(distinct thread) as threads from _io_runs group by log
        )
        select b.log, b.thread from begun b join ran r on r.log = b.log
        where b.t < r.t and not coalesce(list_contains(r.threads, b.thread), false)
    """,
    # Spilled results are Dask's own files, whoever runs meanwhile.
    "io_segments": """
        with logs as (
            select log, process, worker, tied_by is not null as tied,
                   (coalesce(clock_shift_seconds, 0) * 1e9)::bigint as shift
            from darshan_logs
        ), placed as (
            select s.log, l.process, l.worker, l.tied, s.seq, s.thread, s.module, s.operation,
                   s.uri, s."offset", s.length_bytes,
                   make_timestamptz((epoch_ns(s.start) + l.shift) // 1000) as start,
                   make_timestamptz((epoch_ns(s.stop) + l.shift) // 1000) as stop,
                   (epoch_ns(s.stop) - epoch_ns(s.start)) / 1e9 as seconds,
                   epoch_ns(s.start) + (epoch_ns(s.stop) - epoch_ns(s.start)) // 2 + l.shift as t,
                   o.thread is not null as by_loop,
                   regexp_matches(s.uri, '/dask-(scratch|worker)-space/.*/storage/') as own
            from darshan_segments s join logs l on l.log = s.log
            left join _io_loops o on o.log = s.log and o.thread = s.thread
        ), workers as (
            select distinct log, thread, true as runs_tasks from _io_runs
            where thread is not null
        ), attributed as (
            select p.*, w.runs_tasks,
                   case when p.t <= r.t1 and not p.own then r.attempt end as by_thread,
                   case when p.own or w.runs_tasks or p.by_loop then 0
                        else coalesce(m.n, 0) end as n,
                   m.attempt as by_time
            from placed p
            left join workers w on w.log = p.log and w.thread = p.thread
            asof left join (from _io_runs where thread is not null) r
              on r.log = p.log and r.thread = p.thread and p.t >= r.t0
            asof left join _io_steps m on m.log = p.log and p.t >= m.t
        )
        select d.log, d.process, coalesce(a.worker, d.worker) as worker, d.thread, d.module,
               d.operation, d.uri, d."offset", d.length_bytes, d.start, d.stop, d.seconds,
               a.attempt, a.key, a.key_type,
               case when not d.tied then null
                    when d.by_thread is not null then 'thread'
                    when d.n = 1 then 'alone'
                    when d.n > 1 then 'ambiguous' else 'outside' end as attributed_by,
               case when not d.tied then null
                    when d.by_thread is not null then 1 else d.n end as n_candidates
        from attributed d
        left join attempts a
          on a.attempt = coalesce(d.by_thread, case when d.n = 1 then d.by_time end)
    """,
    # What DXT_MPIIO traces goes through POSIX, and is traced again there.
    "_io_attempts": """
        with traced as (
            select attempt,
                   coalesce(sum(length_bytes) filter (operation = 'read'), 0) as read_bytes,
                   coalesce(sum(length_bytes) filter (operation = 'write'), 0) as write_bytes,
                   sum(seconds) as seconds, count(*) as n_segments
            from io_segments where attempt is not null and module = 'DXT_POSIX' group by attempt
        )
        select a.attempt, coalesce(t.read_bytes, 0)::bigint as read_bytes,
               coalesce(t.write_bytes, 0)::bigint as write_bytes,
               coalesce(t.seconds, 0) as seconds, coalesce(t.n_segments, 0) as n_segments
        from (select distinct r.attempt from _io_runs r join darshan_logs l on l.log = r.log
              where l.n_segments is not null) a
        left join traced t on t.attempt = a.attempt
    """,
}
