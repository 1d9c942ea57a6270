"""The derived tables, as SQL over the recorded ones.

Each query sees the recorded tables and the derived ones before it. Keys are always joined by
their number (``_key``, see `key_numbers`), which is that of text and type, so that ``"('x', 0)"``
and ``('x', 0)`` stay apart. What has as many rows as there are transitions is kept narrow.
"""

from __future__ import annotations

from dask_strata.run.derived.chunks import CHUNK_QUERIES
from dask_strata.run.derived.io import IO_QUERIES
from dask_strata.run.derived.processes import PROCESS_QUERIES

#: In order of dependence. `_known` (the last definition of each key) is internal.
QUERIES: dict[str, str] = {
    "_known": """
        with said as (
            select _key, prefix, "group", function, submission, seq from graph_tasks
            union all by name
            select distinct _key, prefix, "group" from scheduler_transitions
            where prefix is not null
            union all by name select _key, prefix from key_prefixes
        )
        select _key, any_value(prefix) as prefix, any_value("group") as "group",
               arg_max(function, seq) as function, arg_max(submission, seq) as submission
        from said group by _key
    """,
    # Workers that were imported as telling by a name, where it is known whose name it is.
    "_named": """
        select name, any_value(address) as address from processes
        where role = 'worker' and transport = 'import' and name is not null group by name
    """,
    # Each transition between those before and after it in the life of its key.
    "_moves": """
        select _row, _key, seq, time, start_state, finish_state,
               lead(_row) over so_far as next_row, lead(time) over so_far as next_time,
               lag(finish_state) over so_far as last_state,
               1 + coalesce(sum((finish_state = 'forgotten')::int) over (
                   partition by _key order by seq
                   rows between unbounded preceding and 1 preceding), 0)::bigint as life
        from scheduler_transitions window so_far as (partition by _key order by seq)
    """,
    # From when to when a key was in processing; `last` is the row that ended it.
    "_stays": """
        with turns as (
            select seq, _key, time as start, next_time as stop, _row as first, next_row as last
            from _moves where finish_state = 'processing'
            union all by name
            select seq, _key, time as stop, _row as last
            from _moves where start_state = 'processing' and last_state is null
        ), numbered as (select *, row_number() over (order by seq) as number from turns)
        select n.number, n.seq, n._key, n.start, n.stop, n.last, e.finish_state as end_state,
               e.stimulus_id, b.worker as first_worker, e.worker as last_worker, e.thread,
               e.nbytes, e.typename, e.exception, e.traceback, e.run_id
        from numbered n left join scheduler_transitions b on b._row = n.first
        left join scheduler_transitions e on e._row = n.last
    """,
    "_parts": """
        select number, i.action as action, i.start as start, i.stop as stop, i.source as source
        from (select s.number, unnest(e.startstops) as i
              from _stays s join scheduler_transitions e on e._row = s.last)
    """,
    "_stolen": """
        select s.number, last(t.destination order by t.time) as worker
        from _stays s join steals t
          on t._key = s._key and t.outcome = 'confirm'
         and t.time >= s.start and (s.stop is null or t.time <= s.stop)
        group by s.number
    """,
    "_ended_on": """
        select s.number, any_value(t.worker) as worker
        from _stays s join worker_transitions t
          on t._key = s._key and t.stimulus_id = s.stimulus_id
        where s.last_worker is null and s.stimulus_id like 'reschedule-%'
        group by s.number
    """,
    "_assigned": """
        select s.number, arg_min(t.worker, abs(epoch_ns(t.time) - epoch_ns(s.start))) as worker
        from _stays s join worker_transitions t
          on t._key = s._key and t.stimulus_id like 'compute-task%'
        where s.last_worker is null and s.first_worker is null and s.start is not null
          and (s.stop is null or epoch_ns(t.time) <= epoch_ns(s.stop) + 1000000000)
          and epoch_ns(t.time) >= epoch_ns(s.start) - 1000000000
        group by s.number
    """,
    # What only the worker's transitions tell: all of an attempt that the scheduler has no row
    # of, and how long one took of which the scheduler was told of a fetch instead.
    "_executing": """
        with seen as (
            select w.* replace (coalesce(p.address, w.worker) as worker), k._key is not null as known
            from worker_transitions w left join _named p on p.name = w.worker
            left join (select distinct _key from scheduler_transitions) k on k._key = w._key
            where w.file is not null or k._key is null
        ), steps as (
            select *, lead(time) over stay as stop, lead(finish_state) over stay as end_state
            from seen
            where (finish_state = 'executing' and start_state <> 'long-running')
               or (start_state in ('executing', 'long-running')
                   and finish_state not in ('executing', 'long-running'))
            window stay as (partition by worker, _key order by time, seq)
        )
        select row_number() over (order by time, worker, key) as number, worker, _key, key, key_type,
               known, time as start, stop, end_state,
               (epoch_ns(stop) - epoch_ns(time)) / 1e9 as seconds
        from steps where finish_state = 'executing'
    """,
    "_executed": """
        with stays as (
            select number, _key, last_worker as worker, epoch_ns(start) as t0,
                   epoch_ns(stop) + 1000000000 as t1
            from _stays where end_state = 'memory'
        ), runs as (
            select number, _key, worker, epoch_ns(stop) as t
            from _executing where known and end_state = 'memory'
        )
        select s.number, r.number as executing
        from stays s asof join runs r
          on r._key = s._key and r.worker = s.worker and s.t1 >= r.t
        where r.t >= coalesce(s.t0, r.t) - 1000000000
    """,
    "_used": """
        select _row, _key, worker, run_id, start,
               row_number() over (partition by _key, worker, run_id order by seq) as nth
        from executions where kind <> 'actor'
    """,
    # Which run of the function was in which stay: by Dask's number; the scheduler is not told
    # the number of one that was cancelled or rescheduled, which goes by worker and time.
    "_ran": """
        select s.number, u._row from _stays s join _used u
          on u._key = s._key and u.run_id = s.run_id
         and u.worker = s.last_worker and u.nth = 1
        union all
        select number, _row from (
            select s.number, u._row,
                   row_number() over (partition by s.number order by
                       abs(epoch_ns(u.start) - epoch_ns(s.start))) as nth_run,
                   row_number() over (partition by u._row order by
                       abs(epoch_ns(u.start) - epoch_ns(s.start))) as nth_stay
            from _stays s
            left join _ended_on e on e.number = s.number
            left join _stolen t on t.number = s.number
            left join _assigned a on a.number = s.number
            join _used u on u._key = s._key
             and u.worker = coalesce(s.last_worker, e.worker, t.worker, s.first_worker, a.worker)
             and epoch_ns(u.start) >= epoch_ns(s.start) - 1000000000
             and (s.stop is null or epoch_ns(u.start) <= epoch_ns(s.stop) + 1000000000)
            where s.run_id is null and not exists (
                select 1 from _stays o
                where o._key = u._key and o.run_id = u.run_id
            )
        ) where nth_run = 1 and nth_stay = 1
    """,
    "attempts": """
        with removals as (
            select distinct worker, stimulus_id from worker_events
            where action = 'remove' and stimulus_id is not null
        ), timed as (
            select number, case when action like 'disk%' then 'disk' else action end as action,
                   epoch_ns(start) as a, epoch_ns(stop) as b
            from _parts
        ), apart as (
            -- Dependencies come from several workers at once: each moment counts once.
            select number, action, b, greatest(a, coalesce(max(b) over (
                       partition by number, action order by a, b
                       rows between unbounded preceding and 1 preceding), a)) as a
            from timed
        ), spent as (
            select number,
                sum(greatest(b - a, 0)) filter (action = 'compute') / 1e9 as compute_seconds,
                sum(greatest(b - a, 0)) filter (action = 'transfer') / 1e9 as transfer_seconds,
                sum(greatest(b - a, 0)) filter (action = 'deserialize') / 1e9 as deserialize_seconds,
                sum(greatest(b - a, 0)) filter (action = 'disk') / 1e9 as disk_seconds
            from apart group by number
        ), counted as (
            select process, execution, sum(requested_bytes)::bigint as library_bytes
            from library_reads group by process, execution
        ), scheduled as (
        select s.number as attempt, s._key, c.key, c.key_type, k.prefix, k."group",
               coalesce(s.last_worker, e.worker, t.worker, s.first_worker, a.worker) as worker,
               s.thread, s.start, s.stop,
               case when s.end_state is null then 'running'
                    when s.end_state in ('memory', 'erred') then s.end_state
                    when s.exception is not null then 'retried'
                    when r.worker is not null then 'lost'
                    when s.stimulus_id like 'reschedule-%' then 'rescheduled'
                    else 'released' end as outcome,
               coalesce(p.compute_seconds, x.seconds) as compute_seconds,
               p.transfer_seconds, p.deserialize_seconds, p.disk_seconds,
               s.nbytes, s.typename, coalesce(s.exception, u.exception) as exception,
               s.traceback, coalesce(s.run_id, u.run_id) as run_id, s.stimulus_id,
               s.seq as _seq, case when p.compute_seconds is null then x.number end as _number,
               u.process as _process, u.execution as _execution, u.kind, u.cpu_seconds,
               u.read_bytes, u.write_bytes, u.read_calls, u.write_calls, u.storage_read_bytes,
               u.storage_write_bytes, u.minor_faults, u.major_faults, u.voluntary_switches,
               u.involuntary_switches, u.rss_before_bytes, u.rss_after_bytes, u.rss_peak_bytes,
               u.shared, u.elsewhere, u.n_opened, l.library_bytes
        from _stays s
        left join _keys c on c._key = s._key
        left join _known k on k._key = s._key
        left join _stolen t on t.number = s.number
        left join _ended_on e on e.number = s.number
        left join _assigned a on a.number = s.number
        left join removals r on r.stimulus_id = s.stimulus_id and r.worker = s.last_worker
        left join spent p on p.number = s.number
        left join _executed d on d.number = s.number
        left join _executing x on x.number = d.executing
        left join _ran n on n.number = s.number
        left join executions u on u._row = n._row
        left join counted l on l.process = u.process and l.execution = u.execution
        ), elsewhere as (
            select (select count(*) from _stays) + row_number() over (order by e.start, e.key) as attempt,
                   e._key, e.key, e.key_type, k.prefix, k."group", e.worker, e.start, e.stop,
                   case e.end_state when 'error' then 'erred' when 'memory' then 'memory'
                        when 'rescheduled' then 'rescheduled' else
                        case when e.end_state is null then 'running' else 'released' end
                   end as outcome,
                   e.seconds as compute_seconds, e.number as _number
            from _executing e left join _known k on k._key = e._key
            where not e.known
        )
        from (select * from scheduled union all by name select * from elsewhere) order by attempt
    """,
    "task_inputs": """
        select _key, key, key_type, 'claimed' as kind, uri, 'read' as mode, dataset, tree, first, last,
               unit, selection, columns, nbytes
        from (select distinct on (_key, uri, dataset, tree, first, last, selection, columns) *
              from claimed_inputs)
        union all by name
        select o._key, o.key, o.key_type, a.attempt, 'seen' as kind, o.uri, o.mode, o.count
        from file_opens o
        left join attempts a on a._process = o.process and a._execution = o.execution
    """,
    **CHUNK_QUERIES,
    **PROCESS_QUERIES,
    "phases": """
        select a.attempt, a.key, a.key_type, a.worker, a.thread, p.action, p.start, p.stop,
               (epoch_ns(p.stop) - epoch_ns(p.start)) / 1e9 as seconds, p.source
        from attempts a join _parts p on p.number = a.attempt
        union all by name
        select a.attempt, a.key, a.key_type, a.worker, a.thread, 'executing' as action,
               e.start, e.stop, e.seconds
        from attempts a join _executing e on e.number = a._number where e.stop is not null
        order by attempt, start
    """,
    **IO_QUERIES,
    "tasks": """
        with by_life as (
            select _key, life, min(seq) as first_seq, max(seq) as last_seq,
                   arg_min(_row, seq) as first_row, arg_max(_row, seq) as last_row,
                   min(time) as submitted,
                   min(time) filter (finish_state = 'processing') as started,
                   min(time) filter (finish_state in ('memory', 'erred')) as finished,
                   max(time) filter (finish_state = 'forgotten') as forgotten,
                   max(seq) filter (finish_state = 'memory') as in_memory,
                   max(seq) filter (finish_state = 'erred') as erred
            from _moves group by _key, life
        ), lives as (
            select l.*, f.start_state as first_state, e.finish_state as last_state,
                   case when coalesce(in_memory, -1) > coalesce(erred, -1) then 'memory'
                        when erred is not null then 'erred' end as result
            from by_life l left join _moves f on f._row = l.first_row
            left join _moves e on e._row = l.last_row
        ), used as (
            select l._key, l.life, count(*) as n_attempts,
                   arg_max(a.worker, a._seq) as worker,
                   sum(a.compute_seconds) as compute_seconds,
                   sum(a.transfer_seconds) as transfer_seconds,
                   arg_max(a.nbytes, a._seq) as nbytes, arg_max(a.typename, a._seq) as typename,
                   sum(i.read_bytes)::bigint as io_read_bytes,
                   sum(i.write_bytes)::bigint as io_write_bytes, sum(i.seconds) as io_seconds
            from attempts a left join _io_attempts i on i.attempt = a.attempt
            join by_life l on l._key = a._key and a._seq between l.first_seq and l.last_seq
            group by l._key, l.life
        ), failed as (
            select m._key, m.life, arg_max(t.exception, m.seq) as exception
            from _moves m join scheduler_transitions t on t._row = m._row
            where m.finish_state = 'erred' and t.exception is not null group by m._key, m.life
        ), needs as (
            select _key, count(distinct _dependency) as n from graph_edges group by _key
        ), needed as (
            select _dependency as _key, count(distinct _key) as n from graph_edges group by _dependency
        ), scheduled as (
        select l._key, c.key, c.key_type, l.life, k.prefix, k."group", k.function,
               case when l.last_state not in ('forgotten', 'released') then l.last_state
                    when l.result is null and l.first_state in ('memory', 'erred') then l.first_state
                    else coalesce(l.result, 'released') end as state,
               u.worker, coalesce(u.n_attempts, 0) as n_attempts,
               l.submitted, l.started, l.finished, l.forgotten,
               u.compute_seconds, u.transfer_seconds,
               (epoch_ns(l.started) - epoch_ns(l.submitted)) / 1e9 as wait_seconds,
               u.nbytes, u.typename,
               coalesce(d.n, 0) as n_dependencies, coalesce(e.n, 0) as n_dependents,
               f.exception, u.io_read_bytes, u.io_write_bytes, u.io_seconds,
               l.first_seq as place
        from lives l left join _keys c on c._key = l._key
        left join _known k on k._key = l._key
        left join used u on u._key = l._key and u.life = l.life
        left join failed f on f._key = l._key and f.life = l.life
        left join needs d on d._key = l._key
        left join needed e on e._key = l._key
        ), executed as (
            select _key, count(*) as n_attempts, arg_max(worker, start) as worker,
                   min(start) as started, sum(compute_seconds) as compute_seconds,
                   sum(i.read_bytes)::bigint as io_read_bytes,
                   sum(i.write_bytes)::bigint as io_write_bytes, sum(i.seconds) as io_seconds
            from attempts a left join _io_attempts i on i.attempt = a.attempt
            where _seq is null group by _key
        ), on_workers as (
            select w._key, any_value(w.key) as key, any_value(w.key_type) as key_type,
                   case when bool_or(w.finish_state = 'memory') then 'memory'
                        when bool_or(w.finish_state = 'error') then 'erred'
                        else arg_max(w.finish_state, w.time) end as state,
                   min(w.time) filter (w.finish_state in ('memory', 'error')
                       and w.start_state in ('executing', 'long-running')) as finished
            from worker_transitions w anti join by_life using (_key) group by w._key
        ), moved as (
            select _key, any_value(key) as key, any_value(key_type) as key_type,
                   max(nbytes) as nbytes
            from transfer_end_keys anti join by_life using (_key) group by _key
        ), unscheduled as (
            select coalesce(w._key, m._key) as _key, coalesce(w.key, m.key) as key,
                   coalesce(w.key_type, m.key_type) as key_type,
                   1 as life, w.state, w.finished, m.nbytes
            from on_workers w full outer join moved m on m._key = w._key
        ), elsewhere as (
            select u._key, u.key, u.key_type, u.life, k.prefix, k."group", k.function, u.state, e.worker,
                   coalesce(e.n_attempts, 0) as n_attempts, e.started, u.finished,
                   e.compute_seconds, e.io_read_bytes, e.io_write_bytes, e.io_seconds, u.nbytes,
                   coalesce(d.n, 0) as n_dependencies, coalesce(g.n, 0) as n_dependents
            from unscheduled u
            left join _known k on k._key = u._key
            left join executed e on e._key = u._key
            left join needs d on d._key = u._key
            left join needed g on g._key = u._key
        )
        from (
            select * from scheduled union all by name
            select *, (1::bigint << 62) + row_number() over (
                order by coalesce(started, finished), key) as place
            from elsewhere
        ) order by place
    """,
    "_ends": """
        with content as (
            select process, number, string_agg(key_type || chr(31) || key, chr(30) order by key_type, key) as content
            from transfer_end_keys group by process, number
        )
        select row_number() over () as id, e.process, e.number, e."end", e.start, e.stop,
               epoch_ns(e.start) as t0, epoch_ns(e.stop) as t1,
               coalesce(p.address, e.worker) as place,
               case when e."end" = 'incoming' then e.peer else place end as source,
               case when e."end" = 'incoming' then place else e.peer end as destination,
               e.total_bytes, e.compressed_bytes, e.n_keys, c.content,
               row_number() over (
                   partition by e."end", source, destination, c.content order by e.start
               ) as nth,
               -- Clocks that nobody measured may be further apart than those that we aligned.
               case when e.file is null then 5000000000 else 60000000000 end as tolerance
        from transfer_ends e
        left join _named p on p.name = e.worker
        left join content c on c.process = e.process and c.number = e.number
    """,
    "_matches": """
        with incoming as (select * from _ends where "end" = 'incoming'),
        outgoing as (select * from _ends where "end" = 'outgoing'),
        in_turn as (
            select i.id as incoming, o.id as outgoing, i.source, i.destination, i.content,
                   i.t0 <= o.t1 + i.tolerance and o.t0 <= i.t1 + i.tolerance as near
            from incoming i full outer join outgoing o using (source, destination, content, nth)
        ), even as (
            -- All that both ends told of this content, in turn, can be the same.
            select source, destination, content from in_turn where content is not null
            group by all having bool_and(coalesce(near, false))
        ), uneven as (
            select i.* from incoming i anti join even e using (source, destination, content)
        ), candidates as (
            select incoming, outgoing, 0 as gap from in_turn
            join even using (source, destination, content)
            -- Else those that are nearest to each other in time.
            union all
            select i.id, o.id, abs(i.t0 - o.t0)
            from uneven i asof join outgoing o
              on o.source = i.source and o.destination = i.destination and o.content = i.content
             and i.t0 >= o.t0
            where i.t0 <= o.t1 + i.tolerance
            union all
            select i.id, o.id, abs(i.t0 - o.t0)
            from uneven i asof join outgoing o
              on o.source = i.source and o.destination = i.destination and o.content = i.content
             and i.t0 <= o.t0
            where o.t0 <= i.t1 + i.tolerance
        )
        select incoming, outgoing from candidates
        qualify row_number() over (partition by incoming order by gap, outgoing) = 1
            and row_number() over (partition by outgoing order by gap, incoming) = 1
    """,
    "_pairs": """
        select row_number() over (order by coalesce(i.start, o.start)) as transfer,
               coalesce(i.start, o.start) as start, coalesce(i.stop, o.stop) as stop,
               coalesce(i.source, o.source) as source,
               coalesce(i.destination, o.destination) as destination,
               coalesce(o.total_bytes, i.total_bytes) as total_bytes, o.compressed_bytes,
               case when i.id is null then 'source' when o.id is null then 'destination'
                    else 'both' end as seen_by,
               coalesce(i.n_keys, o.n_keys) as n_keys,
               coalesce(i.process, o.process) as process,
               coalesce(i.number, o.number) as number
        from (select e.*, m.outgoing from _ends e left join _matches m on m.incoming = e.id
              where e."end" = 'incoming') i
        full outer join (select * from _ends where "end" = 'outgoing') o on o.id = i.outgoing
    """,
    "transfers": """
        select transfer, start, stop, source, destination, total_bytes, compressed_bytes,
               seen_by, n_keys
        from _pairs order by transfer
    """,
    "transfer_keys": """
        select p.transfer, k.key, k.key_type, k.nbytes
        from _pairs p join transfer_end_keys k on k.process = p.process and k.number = p.number
        order by p.transfer
    """,
    "config_differences": """
        with present as (select distinct process from config),
        every as (
            select n.name, p.process, c.value from (select distinct name from config) n
            cross join present p left join config c on c.name = n.name and c.process = p.process
        )
        select name, value, count(*) as n_processes, string_agg(process, ', ' order by process) as processes
        from every where name in (
            select name from every group by name
            having count(distinct coalesce(value, '')) > 1
        ) group by name, value order by name, n_processes desc
    """,
    "package_mismatches": """
        with installed as (
            select process, name, version from packages
            union all by name select process, 'python' as name, python as version from processes
        ), present as (select distinct process from packages),
        every as (
            select n.name, p.process, i.version from (select distinct name from installed) n
            cross join present p left join installed i on i.name = n.name and i.process = p.process
        )
        select name, version, count(*) as n_processes, string_agg(process, ', ' order by process) as processes
        from every where name in (
            select name from every group by name
            having count(distinct coalesce(version, '')) > 1
        ) group by name, version order by name, n_processes desc
    """,
    "_bounds": """
        with moments as (
            select time from scheduler_transitions union all by name
            select time from scheduler_samples union all by name
            select time from worker_transitions where file is not null union all by name
            select time from transfer_ends where file is not null union all by name
            select start as time from processes where role <> 'imported' and start is not null
            union all by name
            select stop as time from processes where role = 'scheduler' and stop is not null
        )
        select min(time) as first, max(time) as last,
               (max(epoch_ns(time)) - min(epoch_ns(time))) / 1e9 as seconds
        from moments
    """,
    # Each stay of a worker in the cluster, and its record.
    "_present": """
        with comings as (
            select worker, name, time as start,
                   case when file is not null
                        then regexp_extract(worker, '://\\[?([^/]*?)\\]?:[0-9]+$', 1) end as host,
                   lead(time) over (partition by worker order by time, seq) as next
            from worker_events where action in ('add', 'present') and worker is not null
        ), stays as (
            select c.worker, c.name, c.host, c.start, c.next, min(e.time) as stop,
                   arg_min(e.reason, e.time) as end_reason
            from comings c left join worker_events e
              on e.worker = c.worker and e.action = 'remove' and e.time >= c.start
             and (c.next is null or e.time <= c.next)
            group by all
        ), known as (
            select p.process, p.address, p.name, p.host, p.nthreads, p.memory_limit_bytes,
                   p.start, p.stop,
                   coalesce(arg_min(s.start, abs(epoch_ns(s.start) - epoch_ns(p.start))),
                            min(s.start)) as stay
            from processes p left join stays s on s.worker = p.address
            where p.role = 'worker' group by all
        )
        select coalesce(s.worker, k.address) as worker, coalesce(s.name, k.name) as name,
               k.process, coalesce(k.host, s.host) as host, k.nthreads,
               k.memory_limit_bytes, coalesce(s.start, k.start) as start, coalesce(s.stop, k.stop) as stop,
               s.end_reason, s.next
        from stays s full outer join known k on k.address = s.worker and k.stay = s.start
    """,
    "workers": """
        with everyone as (
            select * from _present
            union all by name
            -- Who was imported without having been declared.
            select worker, regexp_extract(worker, '://\\[?([^/]*?)\\]?:[0-9]+$', 1) as host
            from (select worker from attempts union select source from transfers
                  union select destination from transfers)
            where worker is not null and exists (from imports where kind is null)
              and worker not in (select worker from _present where worker is not null)
        ), used as (
            select w.worker, w.start, count(*) as n_attempts, sum(a.compute_seconds) as compute_seconds
            from attempts a join everyone w on w.worker = a.worker
             and (w.start is null or a.stop is null or a.stop >= w.start)
             and (w.next is null or coalesce(a.start, a.stop) < w.next)
            group by w.worker, w.start
        )
        select w.worker, w.name, w.process, w.host, w.nthreads, w.memory_limit_bytes,
               w.start, w.stop, w.end_reason, coalesce(u.n_attempts, 0) as n_attempts,
               u.compute_seconds
        from everyone w left join used u
          on u.worker = w.worker and u.start is not distinct from w.start
        order by w.start, w.worker
    """,
}
