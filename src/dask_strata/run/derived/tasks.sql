-- Tasks, one row for each life of a key: those of the scheduler, then those that only workers or
-- transfers record. Tasks that finished before the recording are those that it only saw released, and
-- those whose results workers held when it began; imported runs may have lost the earlier rows.
-- `_since` is the moment from which the recording contains the task's wait: its submission, or the
-- begin of the recording if it was submitted before.
-- depends on: _bounds, _definitions, _dependents, _io_attempts, _keys, _lives, _task_clients, attempts,
-- graph_edges, spans, transfer_end_keys, worker_log, worker_transitions
-- by key: _definitions, _dependents, _keys, _lives, _task_clients, attempts, graph_edges,
-- transfer_end_keys, worker_log, worker_transitions
-- order: position, coalesce(started, finished), key
with held as (
    select distinct _key from worker_log where event = 'held-at-start'
), used as (
    select l._key, l.life, count(*) as n_attempts,
           arg_max(a.worker, a._seq) as worker,
           sum(a.compute_seconds) as compute_seconds,
           case when bool_and(a.cpu_seconds is not null)
                    filter (a.compute_seconds is not null or a.kind is not null)
                then sum(a.cpu_seconds) end as cpu_seconds,
           case when bool_and(a.other_cpu_seconds is not null)
                    filter (a.compute_seconds is not null or a.kind is not null)
                then sum(a.other_cpu_seconds) end as other_cpu_seconds,
           sum(a.transfer_seconds) as transfer_seconds,
           arg_max(a.nbytes, a._seq) as nbytes, arg_max(a.typename, a._seq) as typename,
           sum(i.read_bytes)::bigint as io_read_bytes,
           sum(i.write_bytes)::bigint as io_write_bytes, sum(i.seconds) as io_seconds
    from attempts a left join _io_attempts i on i.attempt = a.attempt
    join _lives l on l._key = a._key and a._seq between l.first_seq and l.last_seq
    group by l._key, l.life
), ended as (
    -- Apart from the others, as it costs more for each task, and few tasks lost a worker.
    select l._key, l.life, string_agg(distinct a.worker_end, ', ' order by a.worker_end) as worker_ends
    from attempts a join _lives l on l._key = a._key and a._seq between l.first_seq and l.last_seq
    where a.worker_end is not null group by l._key, l.life
), needs as (
    select _key, count(distinct _dependency) as n from graph_edges group by _key
), scheduled as (
select l._key, c.key, c.key_type, l.life,
       coalesce(k.prefix, key_prefix(c.key, c.key_type)) as prefix, k."group", k.function,
       q.client, q.clients, p.name as span,
       case when l.finished_before then null
            -- Such as data that the client scattered: nothing waited for them.
            when l.first_state in ('memory', 'erred') then null
            when q.present or l.begun_before then first else l.submitted end as _since,
       case when l.last_state not in ('forgotten', 'released') then l.last_state
            when l.result is null and l.first_state in ('memory', 'erred') then l.first_state
            else coalesce(l.result, 'released') end as state,
       u.worker, coalesce(u.n_attempts, 0) as n_attempts,
       case when l.finished_before then null when q.present then q.submitted
            when not l.begun_before then l.submitted end as submitted,
       l.started, l.finished, l.forgotten, l.finished_before,
       u.compute_seconds, u.cpu_seconds, u.other_cpu_seconds, u.transfer_seconds,
       case when q.present and l.first_state in ('waiting', 'queued', 'no-worker')
            then (epoch_ns(l.started) - epoch_ns(q.submitted)) / 1e9
            when q.present is not true and l.first_state = 'released'
            then (epoch_ns(l.started) - epoch_ns(l.submitted)) / 1e9 end as wait_seconds,
       u.nbytes, u.typename,
       coalesce(d.n, 0) as n_dependencies, coalesce(e.n, 0) as n_dependents,
       l.exception, w.worker_ends, u.io_read_bytes, u.io_write_bytes, u.io_seconds,
       l.first_seq as position
from _lives l cross join _bounds left join _keys c on c._key = l._key
left join _task_clients q on q._key = l._key and q.life = l.life
left join (select span, any_value(name) as name from spans group by span) p on p.span = q.span
left join _definitions k on k._key = l._key
left join used u on u._key = l._key and u.life = l.life
left join ended w on w._key = l._key and w.life = l.life
left join needs d on d._key = l._key
left join _dependents e on e._key = l._key
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
                else last(w.finish_state order by w.time, w.process, w.seq)
                    filter (w.finish_state is not null and w.time is not null) end as state,
           min(w.time) filter (w.finish_state in ('memory', 'error')
               and w.start_state in ('executing', 'long-running')) as finished
    from worker_transitions w anti join _lives using (_key) group by w._key
), transferred as (
    select _key, any_value(key) as key, any_value(key_type) as key_type,
           max(nbytes) as nbytes
    from transfer_end_keys anti join _lives using (_key) group by _key
), unscheduled as (
    select coalesce(w._key, m._key) as _key, coalesce(w.key, m.key) as key,
           coalesce(w.key_type, m.key_type) as key_type,
           1 as life, w.state, w.finished, m.nbytes
    from on_workers w full outer join transferred m on m._key = w._key
), unattended as (
    select u._key, u.key, u.key_type, u.life,
           coalesce(k.prefix, key_prefix(u.key, u.key_type)) as prefix, k."group", k.function,
           u.state, e.worker, coalesce(e.n_attempts, 0) as n_attempts, e.started, u.finished,
           e._key is null and u._key in (from held) as finished_before,
           e.compute_seconds, e.io_read_bytes, e.io_write_bytes, e.io_seconds, u.nbytes,
           coalesce(d.n, 0) as n_dependencies, coalesce(g.n, 0) as n_dependents
    from unscheduled u
    left join _definitions k on k._key = u._key
    left join executed e on e._key = u._key
    left join needs d on d._key = u._key
    left join _dependents g on g._key = u._key
)
from (
    select * from scheduled union all by name
    select *, 1::bigint << 62 as position from unattended
)
