-- Lives of keys: a key that was forgotten may be submitted again. With the states, moments and the
-- last exception of each, by the transitions of the scheduler.
-- depends on: _transitions, imports, scheduler_transitions, worker_transitions
-- by key: _transitions, scheduler_transitions, worker_transitions
with scattered as (
    select distinct _key from worker_transitions
    where file is null and stimulus_id like 'update-data-%'
), by_life as (
    select _key, life, min(seq) as first_seq, max(seq) as last_seq,
           arg_min(_row, seq) as first_row, arg_max(_row, seq) as last_row,
           arg_min_null(start_state, seq) as first_state,
           arg_max_null(finish_state, seq) as last_state,
           min(time) as submitted,
           min(time) filter (finish_state = 'processing') as started,
           min(time) filter (finish_state in ('memory', 'erred')) as finished,
           max(time) filter (finish_state = 'forgotten') as forgotten,
           max(seq) filter (finish_state = 'memory') as in_memory,
           max(seq) filter (finish_state = 'erred') as erred,
           bool_and(finish_state in ('released', 'forgotten')) as only_released
    from _transitions group by _key, life
), lives as (
    select l.*,
           coalesce(l.only_released and l.first_state in ('memory', 'erred', 'released')
                    and l._key not in (from scattered)
                    and not exists (from imports where kind is null), false) as finished_before,
           l.first_state <> 'released'
               and not exists (from imports where kind is null) as begun_before,
           case when coalesce(in_memory, -1) > coalesce(erred, -1) then 'memory'
                when erred is not null then 'erred' end as result
    from by_life l
), failed as (
    select m._key, m.life, arg_max(t.exception, m.seq) as exception
    from _transitions m join scheduler_transitions t on t._row = m._row
    where m.finish_state = 'erred' and t.exception is not null group by m._key, m.life
)
select l.*, x.exception from lives l left join failed x on x._key = l._key and x.life = l.life
